# The submission in a container, from the packages of Debian or Ubuntu and of PyPI alone.
#   make image              rn50:cpu  the demo on any machine; ranks under Horovod with Gloo
#   make image STAGE=gpu    rn50:gpu  NVIDIA GPUs of compute capability 5.0 to 8.6; ranks under Horovod with NCCL, MPI and Gloo
# BASE_IMAGE is any Debian or Ubuntu whose Python is 3.8 to 3.12; requirements/base_image.sh makes one without a registry.
# docker, with BuildKit and without, and podman take it alike: it uses nothing that one of them lacks.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS system
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get -qq update \
 && apt-get -qq install --yes --no-install-recommends \
    ca-certificates libgomp1 libquadmath0 libstdc++6 python3 python3-venv tini >/dev/null \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/rn50
# The image need not know its user: home is where everybody may write.
ENV PATH=/opt/rn50/.venv/bin:$PATH HOME=/tmp PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["tini", "--"]
CMD ["rn50", "--help"]


FROM system AS cpu-packages
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get -qq update && apt-get -qq install --yes --no-install-recommends g++ make >/dev/null
COPY pyproject.toml ./
COPY requirements requirements
# Without the sources, so that a change of them leaves these layers as they are; what will be a package has to look like one, and
# this file has the version.
COPY rn50/__init__.py rn50/
RUN mkdir implementations \
 && for packages in mxnet-cpu horovod-build horovod; do requirements/install.sh $packages || exit; done \
 && pip --quiet uninstall --yes cmake && rm .venv/horovod-build.log


FROM system AS cpu
COPY --from=cpu-packages /opt/rn50/.venv .venv
COPY . .
ARG COMMIT
# The layer of its own is for podman, which else takes an image of an earlier commit from its cache.
RUN : "$COMMIT"
ENV RN50_COMMIT=$COMMIT
USER nobody


FROM system AS gpu-system
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get -qq update \
 && apt-get -qq install --yes --no-install-recommends openmpi-bin openssh-client >/dev/null \
 && rm -rf /var/lib/apt/lists/*
# In a container root is no more than a user.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1


FROM gpu-system AS gpu-packages
ARG DEBIAN_FRONTEND=noninteractive
# nvcc is one of Debian's non-free packages, and takes no compiler newer than GCC 11.
RUN find /etc/apt -name '*.list' -o -name '*.sources' | xargs sed -i -E 's/^(deb .* main|Components: main)$/\1 contrib non-free/' \
 && apt-get -qq update \
 && apt-get -qq install --yes --no-install-recommends g++ g++-11 libopenmpi-dev make nvidia-cuda-toolkit >/dev/null
COPY pyproject.toml ./
COPY requirements requirements
COPY rn50/__init__.py rn50/
RUN mkdir implementations && requirements/install.sh mxnet-cu112
# libcuda.so.1 is the driver's, and MXNet is not imported without one: the toolkit has a stand-in to build against.
RUN mkdir /opt/stand-in && ln -s "$(find /usr/lib -path '*/stubs/libcuda.so')" /opt/stand-in/libcuda.so.1 \
 && ls -d /opt/rn50/.venv/lib/python3.*/site-packages/nvidia/*/lib >/etc/ld.so.conf.d/rn50.conf && ldconfig \
 && export LD_LIBRARY_PATH=/opt/stand-in CUDACXX=/usr/bin/nvcc CUDAHOSTCXX=g++-11 HOROVOD_CUDA_HOME=/usr \
 && for packages in horovod-build horovod-nccl; do requirements/install.sh $packages || exit; done \
 && pip --quiet uninstall --yes cmake && rm .venv/horovod-build.log


FROM gpu-system AS gpu-unchecked
COPY --from=gpu-packages /opt/rn50/.venv .venv
RUN ls -d /opt/rn50/.venv/lib/python3.*/site-packages/nvidia/*/lib >/etc/ld.so.conf.d/rn50.conf && ldconfig


# What an image has to show before it is one; the stand-in stays behind in this stage.
FROM gpu-unchecked AS gpu-check
COPY --from=gpu-packages /opt/stand-in/libcuda.so.1 /opt/stand-in/
COPY requirements requirements
RUN requirements/check_gpu_stage.sh /opt/stand-in >check.txt; status=$?; cat check.txt; exit $status


FROM gpu-unchecked AS gpu
COPY --from=gpu-check /opt/rn50/check.txt check.txt
COPY . .
ARG COMMIT
RUN : "$COMMIT"
ENV RN50_COMMIT=$COMMIT
USER nobody
