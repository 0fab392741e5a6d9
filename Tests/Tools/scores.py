"""Sees to it that PESQ and STOI are there: packages of Debian's, and an environment with what PyPI has."""
import os, pathlib, subprocess, sys
from importlib.util import find_spec

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ["espeak-ng", "python3-venv", "python3-dev", "gcc", "libc6-dev"]
SCORES = ["pesq==0.0.4", "pystoi==0.4.1", "numpy", "matplotlib"]
VENV = ROOT / ".build" / "loss-venv"


def equip(*packages):
    """Installs what is missing, and starts the program again in an environment that has the scores, if this one has not."""
    subprocess.run([ROOT / "Tests" / "install-packages", *PACKAGES, *packages], check=True)
    if all(find_spec(module) for module in ("pesq", "pystoi", "numpy", "matplotlib")):
        return
    if "SCORES_ARE_THERE" in os.environ:
        raise SystemExit(f"pesq and pystoi are not to be found in {VENV}; remove that folder and try again")
    if not (VENV / "complete").exists():
        print("Installing the scores (PyPI: pesq, pystoi); a minute or two, once", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
        subprocess.run([VENV / "bin" / "pip", "install", "--quiet", *SCORES], check=True)
        (VENV / "complete").touch()
    python = str(VENV / "bin" / "python")
    os.execve(python, [python, *sys.argv], {**os.environ, "SCORES_ARE_THERE": "1"})
