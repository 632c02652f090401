# The submission in a container, from the packages of Debian or Ubuntu and of PyPI alone.
#   make image STAGE=mxnet-cpu      the demo on any machine; ranks under Horovod with MPI and Gloo
#   make image STAGE=mxnet-gpu      NVIDIA GPUs of compute capability 5.0 to 8.9; ranks under Horovod with NCCL, MPI and Gloo
#   make image STAGE=paddle-cpu     the demo with PaddlePaddle; ranks in shared memory
#   make image STAGE=paddle-gpu     NVIDIA GPUs of compute capability 6.1 to 8.9; ranks with NCCL
#   make image STAGE=pytorch-cpu    the demo with PyTorch; ranks with Gloo
#   make image STAGE=pytorch-gpu    NVIDIA GPUs that CUDA 13 supports; ranks with NCCL
# A stage is FRAMEWORK-DEVICE of a configuration; requirements/image.sh knows what each needs.
# BASE_IMAGE is any Debian or Ubuntu whose Python is 3.10 to 3.12; requirements/base_image.sh makes one without a registry.
# docker, with BuildKit and without, and podman take it alike: it uses nothing that one of them lacks. Without BuildKit docker
# builds every stage of the file, hence one chain for all.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS system
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get -qq update \
 && apt-get -qq install --yes --no-install-recommends \
    ca-certificates libgomp1 libquadmath0 libstdc++6 python3 python3-venv tini >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
WORKDIR /opt/rn50
# The image need not know its user: home is where everybody may write. In a container root is no more than a user to Open MPI.
# Without the capability "video" NVIDIA's container toolkit hides the GPU's JPEG decoder.
ENV PATH=/opt/rn50/.venv/bin:$PATH HOME=/tmp PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
COPY requirements/image.sh requirements/
ARG STAGE=mxnet-cpu
RUN requirements/image.sh system "$STAGE"
ENTRYPOINT ["tini", "--"]
CMD ["rn50", "--help"]


FROM system AS packages
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG STAGE=mxnet-cpu
COPY pyproject.toml ./
COPY requirements requirements
# Without the sources, so that a change of them leaves these layers as they are; what will be a package has to look like one, and
# this file has the version.
COPY rn50/__init__.py rn50/
RUN mkdir implementations && requirements/image.sh packages "$STAGE"


FROM system AS unchecked
COPY --from=packages /opt/rn50/.venv .venv
# So that MXNet and PaddlePaddle find the CUDA libraries beside them.
RUN ls -d /opt/rn50/.venv/lib/python3.*/site-packages/nvidia/*/lib >/etc/ld.so.conf.d/rn50.conf 2>/dev/null; ldconfig


# What an image has to show before it is one; the stand-in for the driver stays behind in this stage.
FROM unchecked AS check
ARG STAGE=mxnet-cpu
COPY --from=packages /opt/stand-in /opt/stand-in
COPY requirements requirements
RUN requirements/image.sh check "$STAGE" >check.txt; status=$?; cat check.txt; exit $status


FROM unchecked AS image
COPY --from=check /opt/rn50/check.txt check.txt
COPY . .
# Whoever runs it can write nothing here, and each process would compile it.
RUN python -m compileall -q implementations rn50
ARG COMMIT
# The layer of its own is for podman, which else takes an image of an earlier commit from its cache.
RUN : "$COMMIT"
ENV RN50_COMMIT=$COMMIT
USER nobody
