# syntax=docker/dockerfile:1
# The image: the locked dependencies and the wheel in a virtual environment, on a slim glibc base
# (confluent-kafka has no musl wheels). Needs no shell, no writable root, no user of a name.
# Two builds of one commit on one base are the same once the builder sets the files' times:
# `buildah bud --timestamp 0`, or BuildKit's `rewrite-timestamp=true`. Bytecode holds no times: pip, which would
# write them, compiles nothing (0 it is, and not 1: pip takes the value for that of "compile").
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=0 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /build \
    && python3 -m venv --without-pip /opt/sidecar \
    && install -d -m 1777 /opt/run/sidecar
COPY requirements-build.lock requirements.lock /src/
RUN /build/bin/pip install -q --require-hashes -r /src/requirements-build.lock \
    && /build/bin/pip --python /opt/sidecar/bin/python install -q \
        --require-hashes --only-binary :all: -r /src/requirements.lock
COPY pyproject.toml README.md LICENSE /src/
COPY sidecar /src/sidecar
RUN /build/bin/pip wheel -q --no-deps --no-build-isolation --wheel-dir /src/dist /src \
    && /build/bin/pip --python /opt/sidecar/bin/python install -q --no-deps /src/dist/*.whl \
    && python3 -m compileall -q -f --invalidation-mode unchecked-hash /opt/sidecar/lib

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/sidecar /opt/sidecar
COPY --from=build /opt/run /run
ENV PATH=/opt/sidecar/bin:/usr/local/bin:/usr/bin:/bin
# Numeric, so that the kubelet can see that it is not root.
USER 65532:65532
EXPOSE 8090
ENTRYPOINT ["sidecar"]
CMD ["run", "-c", "/etc/sidecar/sidecar.yaml"]
# Last, so that other labels leave the layers as they are. What a builder does not say stays "unknown".
ARG PYTHON_IMAGE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="kafka-dispatch-sidecar" \
      org.opencontainers.image.description="A sidecar that consumes Kafka into a bounded buffer and POSTs each message to the application beside it" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
