# policy: import ctypes
# outcome: killed
# says: killed by signal 11 (Segmentation fault
import ctypes


def train(step, params, batches):
    ctypes.string_at(0)  # here
