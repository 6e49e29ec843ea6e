"""A module that starts a thread when it is imported, as some libraries do."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
