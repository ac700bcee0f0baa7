# One broker on port 9092, data in /var/lib/ottla:
#   docker build -t ottla . && docker run -p 127.0.0.1:9092:9092 -v ottla-data:/var/lib/ottla ottla
# Settings are those of the apache/kafka image: KAFKA_NODE_ID, KAFKA_LISTENERS, CLUSTER_ID, ...

FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY ottla ottla
RUN OTTLA_COMPILE=yes pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.11-slim
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --no-index --find-links=/tmp/wheels ottla \
    && rm -r /tmp/wheels \
    && useradd --system --user-group --home-dir /var/lib/ottla --create-home ottla
COPY packaging/container /etc/kafka/docker
USER ottla
WORKDIR /var/lib/ottla
VOLUME /var/lib/ottla
EXPOSE 9092

# Metrics and events are on 9464 of the container's own loopback, where the health check finds them;
# they know no password. To open them: -e KAFKA_OTTLA_TELEMETRY_HOST=0.0.0.0 -p 127.0.0.1:9464:9464

# Inside a container loopback is nobody's; clients on the host come through the published port.
ENV KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_LOG_DIRS=/var/lib/ottla/data \
    PYTHONUNBUFFERED=1

# Where KAFKA_OTTLA_TELEMETRY_PORT is -1, or the telemetry has an address other than loopback or all,
# turn the check off (--no-healthcheck) or give another.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s --retries=3 CMD ["/etc/kafka/docker/ready"]

# Without an entrypoint, as who replaces the command expects it: packaging/container/run.
STOPSIGNAL SIGTERM
CMD ["ottla", "serve"]
