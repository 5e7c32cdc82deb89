# policy: import os
# outcome: garbled
# says: not a record
import os
import struct


def train(step, params, batches):
    body = b'{"outcome": {"kind": "finished"}, "facts": {"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}"
    for fd in range(3, 300):
        try:
            os.write(fd, struct.pack("<Q", len(body)) + body)
        except OSError:
            pass
    os._exit(0)
