# policy: import os
# outcome: garbled
# says: not a record
import os
import struct


def train(step, params, batches):
    body = b"\xff{]" * 50
    for fd in range(3, 300):
        try:
            os.write(fd, struct.pack("<Q", len(body)) + body)
        except OSError:
            pass
    os._exit(0)
