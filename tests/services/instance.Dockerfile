# A scripted instance: what tests of the provider run where a function's sidecar would be.
FROM carpool/sidecar:latest
COPY instance.py .
ENV sidecar_listen=0.0.0.0:8080
ENTRYPOINT ["python", "instance.py"]
