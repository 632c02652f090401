"""A configuration file of somebody else."""

import pytest

from rn50.settings.document import Document
from tests.settings.imagenet import IMAGENET


@pytest.fixture
def foreign(tmp_path):
    """A file in the published style: it sources a neighbour, computes values, prints, and sets names that
    nobody here knows."""
    (tmp_path / "config_X8_common.sh").write_text(
        "export DGXNGPU=8\nexport DGXNSOCKET=2\nexport MXNET_EXTENDED_NORMCONV_SUPPORT=1\nexport "
        "NEIGHBOURS_OWN=1\n")
    file = tmp_path / "config_X8.sh"
    lines = [
        f'export {name}="{value}"  # as published' for name, value in IMAGENET.items() if name != "DGXNGPU"]
    file.write_text(
        "source $(dirname ${BASH_SOURCE[0]})/config_X8_common.sh\necho running\n"
        + "\n".join(lines)
        + """
export NUMEPOCHS=${NUMEPOCHS:-"37"}
export KVSTORE="horovod"
export LRSCHED="pow2"
export NETWORK="resnet-v1b-stats-fl"
export DALI_HW_DECODER_LOAD="0.7"
export DALI_ROI_DECODE="1"
export DALI_CACHE_SIZE="0"
export NHWC_BATCHNORM_LAUNCH_MARGIN=32
export NCCL_SOCKET_IFNAME=""
export HOROVOD_CYCLE_TIME=0.1
export BATCHSIZ=1
PLAIN_ASSIGNMENT=1
#export COMMENTED_OUT=1
export DGXSYSTEM=$(basename $(readlink -f ${BASH_SOURCE[0]}) | sed 's/^config_//' | sed 's/\\.sh$//' )
export WALLTIME=$(( ${NEXP:-1} * 8 + 10 ))
"""
    )
    return Document(file)
