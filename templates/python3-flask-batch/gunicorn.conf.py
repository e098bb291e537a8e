"""How gunicorn serves the function: one process that has the model, and a thread for probes."""

import os

bind = f"127.0.0.1:{os.environ.get('PORT', '5000')}"  # the sidecar says where
chdir = "function"
wsgi_app = "handler:app"
worker_class = "gthread"
threads = 2  # one request at a time is sent, and probes are to be answered meanwhile
keepalive = 75  # seconds; longer than the sidecar keeps a connection that has nothing to do
timeout = 0  # what hangs is the sidecar's to end: exec_timeout
control_socket_disable = True  # it is not controlled at run time
