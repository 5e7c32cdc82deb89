# policy: import urllib
# outcome: raised
# says: URLError
import urllib.request


def train(step, params, batches):
    urllib.request.urlopen("http://127.0.0.1:PORT/", timeout=2)  # here
