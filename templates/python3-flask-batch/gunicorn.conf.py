"""gunicorn's settings: one process, which has the model, and a second thread for probes."""

import os

bind = f"127.0.0.1:{os.environ.get('PORT', '5000')}"  # the sidecar sets PORT
chdir = "function"
wsgi_app = "handler:app"
worker_class = "gthread"
threads = 2  # the sidecar sends one request at a time; the other thread answers probes
keepalive = 75  # seconds; longer than the sidecar keeps an idle connection
timeout = 0  # the sidecar restarts a handler that hangs (exec_timeout)
control_socket_disable = True  # gunicorn is not controlled at run time
