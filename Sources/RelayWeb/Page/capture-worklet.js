// The audio thread of the microphone: blocks of 10 ms, with their place on the microphone's clock.
const blockLength = 480;

class Capture extends AudioWorkletProcessor {
  block = new Float32Array(blockLength);
  filled = 0;

  process([input]) {
    const samples = input[0];
    if (!samples) return true;
    let at = 0;
    while (at < samples.length) {
      const count = Math.min(samples.length - at, blockLength - this.filled);
      this.block.set(samples.subarray(at, at + count), this.filled);
      this.filled += count;
      at += count;
      if (this.filled === blockLength) this.give(currentFrame + at - blockLength);
    }
    return true;
  }

  give(captured) {
    const { block } = this;
    this.port.postMessage({ samples: block, captured }, [block.buffer]);
    this.block = new Float32Array(blockLength);
    this.filled = 0;
  }
}

registerProcessor("pttd-capture", Capture);
