# outcome: raised
# says: Shy: <exception str() failed>


class Shy(BaseException):
    def __str__(self):
        raise SystemExit(0)


def train(step, params, batches):
    raise Shy  # here
