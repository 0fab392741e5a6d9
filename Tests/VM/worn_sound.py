"""Known sounds for headsets with sound, without any package: what virtual_headset.py says and judge_worn.py looks for.

    worn_sound.py noise OUT.wav SECONDS SEED        48 kHz; straight lines between the samples of 8 kHz"""
import array
import math
import random
import sys
import wave

RATE = 8000             # of the hands-free profile with CVSD


def noise(seconds, seed=1):
    source = random.Random(seed)
    return [round(source.gauss(0, 3000)) for _ in range(round(seconds * RATE))]


def tone(seconds):
    return [round(10000 * math.sin(2 * math.pi * 1000 * i / RATE)) for i in range(round(seconds * RATE))]


def at_rate(values, own, rate):
    """Means where there are more samples than asked for, straight lines between them where there are fewer."""
    if own % rate == 0:
        step = own // rate
        return [sum(values[i:i + step]) // step for i in range(0, len(values) - step + 1, step)]
    result = []
    for i in range((len(values) - 1) * rate // own):
        whole, part = divmod(i * own, rate)
        result.append(values[whole] + (values[whole + 1] - values[whole]) * part // rate)
    return result


def read(path):
    """Samples and rate of a mono WAV of 16 bits."""
    with wave.open(path) as w:
        if (w.getnchannels(), w.getsampwidth()) != (1, 2):
            raise ValueError(f'{path} is not 16-bit and mono')
        return array.array('h', w.readframes(w.getnframes())), w.getframerate()


def write(path, values, rate):
    with wave.open(path, 'wb') as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(rate)
        w.writeframes(array.array('h', values).tobytes())


if __name__ == '__main__':
    if len(sys.argv) != 5 or sys.argv[1] != 'noise':
        sys.exit(__doc__)
    write(sys.argv[2], at_rate(noise(float(sys.argv[3]), int(sys.argv[4])), RATE, 48000), 48000)
