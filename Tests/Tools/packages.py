"""Debian packages that a script needs, installed before it imports what is in them."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = ["dbus", "python3-numpy", "python3-matplotlib"]          # what line.py imports and starts, beside our programs
SPEECH = ["espeak-ng"]                                          # what speaks in its place
PULSE = ["pulseaudio", "pulseaudio-utils", "libasound2-plugins"]   # pulse.py, and pttd on it
PIPEWIRE = ["pipewire", "wireplumber", "pipewire-pulse", "pulseaudio-utils", "libasound2-plugins", "dbus"]   # pipewire.py


def install(*names):
    """Installs those that are missing, as root or with sudo; ends the script when that fails."""
    if subprocess.run([ROOT / "Tests" / "install-packages", *names]).returncode:
        raise SystemExit("could not install what is missing of: " + " ".join(names))
