"""A module that takes for ever to import."""

import sys
import threading

sys.stdout.write("starting\n")
sys.stdout.flush()
threading.Event().wait()
