# policy: import tensorflux
# outcome: raised
# says: ModuleNotFoundError: No module named 'tensorflux'
import tensorflux  # here


def train(step, params, batches):
    return params, []
