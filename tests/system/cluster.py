"""Machines to launch on, made by a test: hosts that are network namespaces, sshd on them, and a Slurm
cluster."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

import psutil
import pytest

LIMIT_S = 30
"""So long a daemon may take to answer."""


def run(*argv, **kwargs):
    """Its standard output; what it says on standard error where it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, **kwargs)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


class Host:
    """This machine under another name and, with a ``namespace``, with a network of its own."""

    def __init__(self, name, address, namespace=None, hosts_file=None):
        self.name, self.address = name, address
        self._enter = ()
        if namespace:
            dress = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'
            self._enter = (
                "nsenter", f"--net=/run/netns/{namespace}", "unshare", "--mount", "--uts", "sh", "-c", dress,
                "sh", str(hosts_file), name)

    def argv(self, *command):
        """``command`` as this host runs it."""
        return (*self._enter, *map(str, command))


class Namespaces:
    """Two hosts that see each other over one virtual link, and nothing else."""

    def __init__(self, folder):
        self._names = [f"rn50-{os.getpid()}-{number}" for number in (1, 2)]
        addresses = ["10.213.77.1", "10.213.77.2"]
        hosts_file = folder / "hosts"
        hosts_file.write_text("127.0.0.1 localhost\n10.213.77.1 alpha1\n10.213.77.2 alpha2\n")
        try:
            for name in self._names:
                run("ip", "netns", "add", name)
            first, second = self._names
            run(
                "ip", "link", "add", "link0", "netns", first, "type", "veth", "peer", "name", "link0",
                "netns", second)
            for name, address in zip(self._names, addresses, strict=False):
                run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "link0")
                for interface in ("lo", "link0"):
                    run("ip", "-n", name, "link", "set", interface, "up")
            self.hosts = [
                Host(f"alpha{number}", addresses[number - 1], self._names[number - 1], hosts_file)
                for number in (1, 2)]
            for host in self.hosts:
                assert run(*host.argv("hostname")) == host.name + "\n"
        except BaseException:
            self.close()
            raise

    def received_bytes(self):
        """What the second host has received over the link."""
        return int(
            run("ip", "netns", "exec", self._names[1], "cat", "/sys/class/net/link0/statistics/rx_bytes"))

    def close(self):
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def need_namespaces():
    """Skips the test where no network namespace can be made."""
    if os.geteuid() != 0:
        pytest.skip("hosts as network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("hosts as network namespaces need the package iproute2")
    probe = f"rn50-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode == 0:
        made = subprocess.run(
            ["nsenter", f"--net=/run/netns/{probe}", "unshare", "--mount", "--uts", "hostname", "probe"],
            capture_output=True, text=True)
        subprocess.run(["ip", "netns", "delete", probe], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"this kernel allows no network namespaces: {made.stderr.strip()}")


class Slurm:
    """munged, slurmctld on the first host and slurmd on each, with a configuration of their own in
    ``folder``."""

    def __init__(self, hosts, folder):
        self._hosts, self._daemons, self._folder = hosts, [], folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        self._folder.chmod(0o755)
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        (self._folder / "munge").mkdir(mode=0o755)
        munge = {
            name: f"{self._folder}/munge/{name}" for name in ("socket", "pid-file", "log-file", "seed-file")}
        self._daemon(
            ["munged", "--foreground", "--force", f"--key-file={key}",
             *(f"--{name}={path}" for name, path in munge.items())])
        controller_port, daemon_port = _free_ports(2)
        lines = [
            "ClusterName=test", f"SlurmctldHost={self._hosts[0].name}({self._hosts[0].address})",
            "SlurmUser=root", "AuthType=auth/munge", f"AuthInfo=socket={munge['socket']}", "MpiDefault=none",
            "ReturnToService=2", "KillWait=5", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/affinity", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core",
            f"SlurmctldPort={controller_port}", f"SlurmdPort={daemon_port}",
            f"StateSaveLocation={self._folder}/state", f"SlurmdSpoolDir={self._folder}/spool-%n",
            f"SlurmctldPidFile={self._folder}/slurmctld.pid", f"SlurmdPidFile={self._folder}/slurmd-%n.pid",
            *(
                f"NodeName={host.name} NodeAddr={host.address} NodeHostname={host.name} "
                f"CPUs={os.cpu_count()} State=UNKNOWN" for host in self._hosts),
            "MailProg=/bin/true", "PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP"]
        (self._folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        for name in ("state", *(f"spool-{host.name}" for host in self._hosts)):
            (self._folder / name).mkdir()
        self._daemon(self._hosts[0].argv("slurmctld", "-D"))
        for host in self._hosts:
            self._daemon(host.argv("slurmd", "-D", "-N", host.name))
        deadline = time.monotonic() + LIMIT_S
        states = ""
        while states.split() != ["idle"] * len(self._hosts):
            dead = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            assert not dead and time.monotonic() < deadline, (
                dead, states, (self._folder / "daemons.log").read_text())
            time.sleep(0.2)
            states = subprocess.run(
                self._hosts[0].argv("sinfo", "--noheader", "--Node", "--format=%t"), timeout=LIMIT_S,
                env={**os.environ, **self.environment}, capture_output=True, text=True).stdout

    def _daemon(self, argv):
        with (self._folder / "daemons.log").open("a") as log:
            self._daemons.append(
                subprocess.Popen(
                    argv, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log))

    def close(self):
        end(self._daemons)
        for (
            process
        ) in psutil.process_iter():  # slurmstepd of a job that a failed test has left is nobody's child
            with contextlib.suppress(psutil.Error):
                if (
                    process.name().startswith("slurmstepd")
                    and self.environment.items() <= process.environ().items()
                ):
                    process.kill()


class Ssh:
    """sshd on some hosts, and an ``ssh`` that gets into them, first on a PATH that begins with ``folder``."""

    PORT = 2222

    def __init__(self, hosts, folder):
        folder.chmod(0o755)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
        (folder / "config").write_text(
            f"Port {self.PORT}\nIdentityFile {folder}/key\nIdentitiesOnly yes\nUserKnownHostsFile "
            "/dev/null\nLogLevel ERROR\n")
        (folder / "sshd_config").write_text(
            f"Port {self.PORT}\nHostKey {folder}/key\nAuthorizedKeysFile {folder}/key.pub\nStrictModes "
            "no\nUsePAM no\n" f"PidFile none\nPermitRootLogin prohibit-password\n")
        (folder / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
        (folder / "ssh").chmod(0o755)
        os.makedirs("/run/sshd", exist_ok=True)  # sshd wants it, empty
        self.path = str(folder)
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        with (folder / "sshd.log").open("w") as log:
            self._daemons = [
                subprocess.Popen(
                    host.argv(sshd, "-D", "-e", "-f", folder / "sshd_config"), stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log)
                for host in hosts]
        for host in hosts:
            deadline = time.monotonic() + LIMIT_S
            while (
                subprocess.run(
                    hosts[0].argv(folder / "ssh", "-o", "StrictHostKeyChecking=no", host.name, "true"),
                    capture_output=True, timeout=LIMIT_S).returncode
                != 0
            ):
                assert time.monotonic() < deadline, (folder / "sshd.log").read_text()
                time.sleep(0.1)

    def close(self):
        end(self._daemons)


def end(processes):
    """Ends some processes, and what they have started."""
    alive = []
    for process in processes:
        if process.poll() is None:
            tree = psutil.Process(process.pid)
            alive += [tree, *tree.children(recursive=True)]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(alive, timeout=5)[1]:
        process.kill()
    for process in processes:
        process.wait(timeout=LIMIT_S)


def need_slurm():
    """Skips the test where Slurm's daemons are not installed or may not run."""
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    for program, package in (("slurmctld", "slurm-wlm"), ("slurmd", "slurm-wlm"), ("munged", "munge")):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}; install the package {package}")


def _free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
