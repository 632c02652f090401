"""Programs, modules and files of a stranger's result; each leaves a mark when it runs."""

import os

NAMES = ("bash", "cat", "env", "git", "gcc", "hostname", "lscpu", "nvidia-smi", "python3", "sh", "uname")
MODULES = ("json", "sitecustomize", "usercustomize")


def plant(folder, mark):
    """Returns variables that would run what is planted in ``folder``, which then writes beside ``mark``."""
    (folder / "bin").mkdir(parents=True)
    for name in NAMES:
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\n/bin/echo {name} >> "{mark}.program"\nexec /usr/bin/{name} "$@"\n')
        program.chmod(0o755)
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(mark) + '.module'!r}, 'a').write({name!r})\n")
    (folder / "sourced.sh").write_text(f'/bin/echo sourced >> "{mark}.sourced"\n')
    command = f"/bin/touch {mark}.command"
    return {
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(folder),
        "PYTHONSTARTUP": str(folder / "json.py"), "BASH_ENV": str(folder / "sourced.sh"),
        "ENV": str(folder / "sourced.sh"), "LD_PRELOAD": str(folder / "library.so"),
        "LD_AUDIT": str(folder / "library.so"), "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": f"{mark}.loader",
        "LD_LIBRARY_PATH": str(folder), "GIT_TRACE": f"{mark}.git", "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": command, "GIT_SSH_COMMAND": command,
        "GIT_EXTERNAL_DIFF": command, "PROMPT_COMMAND": command, "PS4": f"$({command})",
        "SHELLOPTS": "xtrace", "MXNET_LIBRARY_PATH": str(folder / "library.so"),
        "NCCL_NET_PLUGIN": str(folder / "library.so"), "HOROVOD_TIMELINE": f"{mark}.timeline",
        "TORCHINDUCTOR_CACHE_DIR": str(folder), "CONFIG_FILE": str(folder / "sourced.sh"), "RN50_DEBUG": "1"}


def marks(mark):
    """The marks that were left."""
    return sorted(name for name in os.listdir(mark.parent) if name.startswith(f"{mark.name}."))
