// Sample formats and channel counts of devices and files, to and from the one format inside: mono Float at ±1.
import Glibc

/// How one sample is stored: little-endian, interleaved.
enum SampleFormat: UInt8, BitwiseCopyable, Sendable {
    case unsigned8, signed16, signed24Packed, signed32, float32

    /// More channels than this are not mixed.
    static let channelsMax = 32

    var bytesPerSample: Int {
        switch self {
        case .unsigned8: 1
        case .signed16: 2
        case .signed24Packed: 3
        case .signed32, .float32: 4
        }
    }

    /// Mixes `frames` interleaved frames down to mono: the mean of the channels, so that nothing clips.
    ///
    /// `source` holds at least `frames * channels * bytesPerSample` bytes, `output` at least `frames` samples.
    func decode(
        _ source: UnsafeRawPointer, frames: Int, channels: Int, into output: UnsafeMutablePointer<Float>
    ) {
        let share = 1 / Float(channels)
        for frame in 0..<frames {
            var sum: Float = 0
            for channel in 0..<channels {
                sum += sample(source + (frame * channels + channel) * bytesPerSample)
            }
            output[frame] = sum * share
        }
    }

    /// Writes mono samples to every one of `channels` channels, clipped to the format's range.
    func encode(
        _ source: UnsafePointer<Float>, frames: Int, channels: Int, into output: UnsafeMutableRawPointer
    ) {
        for frame in 0..<frames {
            // NaN would trap in the conversions below; it is silence.
            let raw = source[frame]
            let value = raw.isNaN ? 0 : min(1, max(-1, raw))
            for channel in 0..<channels {
                let target = output + (frame * channels + channel) * bytesPerSample
                switch self {
                case .unsigned8: target.storeBytes(of: UInt8((128 + value * 127).rounded()), as: UInt8.self)
                case .signed16: target.storeBytes(of: Self.signed16(value), as: Int16.self)
                case .signed24Packed:
                    let scaled = Int32((value * 8_388_607).rounded())
                    target.storeBytes(of: UInt8(truncatingIfNeeded: scaled), as: UInt8.self)
                    target.storeBytes(of: UInt8(truncatingIfNeeded: scaled >> 8), toByteOffset: 1, as: UInt8.self)
                    target.storeBytes(of: UInt8(truncatingIfNeeded: scaled >> 16), toByteOffset: 2, as: UInt8.self)
                case .signed32: target.storeBytes(of: Int32(Double(value) * 2_147_483_647), as: Int32.self)
                case .float32: target.storeBytes(of: value, as: Float.self)
                }
            }
        }
    }

    /// A sample of ±1 as 16 bits, clipped.
    static func signed16(_ value: Float) -> Int16 {
        value.isNaN ? 0 : Int16(min(1, max(-1, value)) * 32_767)
    }

    private func sample(_ pointer: UnsafeRawPointer) -> Float {
        switch self {
        case .unsigned8: return (Float(pointer.loadUnaligned(as: UInt8.self)) - 128) / 128
        case .signed16: return Float(pointer.loadUnaligned(as: Int16.self)) / 32_768
        case .signed24Packed:
            let low = UInt32(pointer.loadUnaligned(as: UInt8.self))
            let middle = UInt32(pointer.loadUnaligned(fromByteOffset: 1, as: UInt8.self))
            let high = UInt32(pointer.loadUnaligned(fromByteOffset: 2, as: UInt8.self))
            return Float(Int32(bitPattern: (low << 8) | (middle << 16) | (high << 24)) >> 8) / 8_388_608
        case .signed32: return Float(pointer.loadUnaligned(as: Int32.self)) / 2_147_483_648
        case .float32:
            let value = pointer.loadUnaligned(as: Float.self)
            // A file may hold anything; infinities would ring through the filters for ever.
            return value.isFinite ? min(8, max(-8, value)) : 0
        }
    }
}
