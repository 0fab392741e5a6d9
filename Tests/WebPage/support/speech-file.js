// The sound of the tests: what a microphone hears.
import { writeFileSync } from "node:fs";

/** A WAV file with something like speech: a voice of changing pitch in syllables. */
export function speechFile(file, seconds = 10) {
  const rate = 48000, count = seconds * rate;
  const bytes = Buffer.alloc(44 + count * 2);
  bytes.write("RIFF", 0);
  bytes.writeUInt32LE(36 + count * 2, 4);
  bytes.write("WAVEfmt ", 8);
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(rate, 24);
  bytes.writeUInt32LE(rate * 2, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write("data", 36);
  bytes.writeUInt32LE(count * 2, 40);
  let phase = 0;
  for (let index = 0; index < count; index++) {
    const time = index / rate;
    phase += 2 * Math.PI * (140 + 40 * Math.sin(2 * time)) / rate;
    let wave = 0;
    for (let harmonic = 1; harmonic < 12; harmonic++) wave += Math.sin(harmonic * phase) / harmonic;
    bytes.writeInt16LE(Math.round(9000 * wave * Math.max(0.1, Math.sin(2 * Math.PI * 2 * time))), 44 + index * 2);
  }
  writeFileSync(file, bytes);
}
