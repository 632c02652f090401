"""Names of the files in the folder of a data set (DATADIR)."""

VALIDATION_FILES = ("val.rec", "val.idx")
FILES = ("train.rec", "train.idx", *VALIDATION_FILES)
"""Records and indices of both splits."""
CERTIFICATE = "certificate.json"
"""The result of ``rn50 verify``."""
DEMO_RECORD = "demo_dataset.json"
"""The settings with which ``rn50 demo-data`` generated the data set."""
_SHAPES = ("rectangle", "triangle", "cross", "ring", "crescent")
DEMO_CLASSES = [f"{colouring} {shape}" for colouring in ("coloured", "grey") for shape in _SHAPES]
"""Names of the classes of a demo data set, label 0 first."""
CLASSES = "classes.txt"
PACK_RECORD = "pack.json"
LISTS = ("train.tsv", "val.tsv")
OPEN_ONLY = "open-division-only"
"""An empty file that ``rn50 pack --short-side`` adds. Its presence tells that images were resized, at a time
when no file of the data set may be opened: before the clock runs."""
PACKED = (PACK_RECORD, CLASSES, *LISTS)
"""The files that ``rn50 pack`` adds to records and indices: its settings, the class names, and the images of
each split in the order of the records."""
