"""Names of the files in a data folder."""

VALIDATION_FILES = ("val.rec", "val.idx")
FILES = ("train.rec", "train.idx", *VALIDATION_FILES)
"""Records and indices of both splits."""
CERTIFICATE = "certificate.json"
"""Written by ``rn50 verify``."""
DEMO_RECORD = "demo_dataset.json"
"""Written by ``rn50 demo-data``: the settings of a generated data set."""
CLASSES = "classes.txt"
PACK_RECORD = "pack.json"
LISTS = ("train.tsv", "val.tsv")
PACKED = (PACK_RECORD, CLASSES, *LISTS)
"""Written by ``rn50 pack``: its settings, the class names, and the images of each split in record order."""
