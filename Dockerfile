# The operator's image: Python, the pinned packages and the operator; no compiler, no pip, no kubernetes-asyncio (a pod needs no
# kubeconfig). It runs as a user without a name, and writes nowhere: the root file system can be read-only.
#
# The base is named by the digest of its image index, which serves every platform. To take a newer one:
#   docker buildx imagetools inspect docker.io/library/python:3.13-slim-trixie
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-trixie
ARG PYTHON_DIGEST=sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6

FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# What builds the wheel, apart from what runs.
COPY requirements/build.txt requirements/
RUN python -m pip install --quiet --require-hashes --only-binary :all: --target /build -r requirements/build.txt

# What runs. Only wheels: nothing of a package is executed here.
COPY requirements/image.txt requirements/
RUN python -m venv --without-pip /opt/cocoon-operator && \
    python -m pip --python /opt/cocoon-operator/bin/python install --quiet --require-hashes --only-binary :all: -r requirements/image.txt

COPY pyproject.toml README.md LICENSE ./
COPY crds crds
COPY operator operator
RUN PYTHONPATH=/build python -m pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir /dist . && \
    python -m pip --python /opt/cocoon-operator/bin/python install --quiet --no-deps --no-index /dist/*.whl && \
    /opt/cocoon-operator/bin/python -c "import shutil, cocoon_devkit as kit; shutil.rmtree(kit.__path__[0])" && \
    rm /opt/cocoon-operator/bin/cocoon-devkit && \
    /opt/cocoon-operator/bin/cocoon-operator version

FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST}
LABEL org.opencontainers.image.title="cocoon-operator" \
      org.opencontainers.image.description="Suspends, wakes, migrates and rebuilds MicroVM-backed agent pods of CocoonSets" \
      org.opencontainers.image.source="https://github.com/cocoonstack/cocoon-operator" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN python -m pip uninstall --quiet --yes --root-user-action ignore pip
COPY --from=build /opt/cocoon-operator /opt/cocoon-operator
ENV PATH=/opt/cocoon-operator/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# The numbers of the chart's security context; a name could not be checked by runAsNonRoot.
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["cocoon-operator"]
