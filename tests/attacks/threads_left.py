# policy: import threading
# outcome: finished
import threading
import time


def train(step, params, batches):
    threading.Thread(target=time.sleep, args=(600,)).start()
    losses = []
    for batch in batches:
        params, loss = step(params, batch)
        losses.append(loss)
    return params, [float(loss) for loss in losses]
