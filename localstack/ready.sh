#!/bin/sh
# Runs inside the container, once LocalStack is ready there, with the Python that LocalStack itself runs on.
[ $# -gt 0 ] || set -- leasehold
unset AWS_ENDPOINT_URL
exec /opt/code/localstack/.venv/bin/python /opt/leasehold/deploy.py /opt/leasehold/queue.yaml "$@"
