# outcome: raised
# says: ValueError: Python cannot print what it says


class Words(str):
    def __str__(self):
        return self

    def split(self, *given):
        raise ValueError("no parts")


def train(step, params, batches):
    error = ValueError("a note follows")
    error.add_note(Words("note"))
    raise error  # here
