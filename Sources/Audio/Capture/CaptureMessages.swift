// What goes into the capture thread and what comes out of it, as the rings carry it.
import MonotonicTime
import Vocabulary

/// What `CaptureEngine` asks of its thread.
enum CaptureCommand: BitwiseCopyable {
    case prepare
    case unprepare
    case start(burst: UInt32, at: Int64, afterGoAhead: Bool)
    case goAhead(from: Int64)
    case stop(end: Int64)
    case abort
}

/// One slot of the ring of outputs.
struct CaptureSlot: BitwiseCopyable {
    enum Kind: UInt8, BitwiseCopyable {
        case prepared, hears, began, frame, fellSilent, heardAgain, lost, resumed, ended, failed
    }

    var kind: Kind
    var isFirst = false
    var isLast = false
    /// `.hears`: it really does.
    var isHearing = false
    var end = CaptureEnd.stopped.rawValue
    var fault = AudioFault(.open, 0)
    var burst: UInt32 = 0
    var position: UInt32 = 0
    /// Nanoseconds: a point in time, or for `.prepared` a span; for `.hears` the span until it settled, negative for none.
    var time: Int64 = 0
    var span: Int64 = 0
    /// dBFS.
    var level = OutgoingFrame.levelMin
}

extension CaptureSlot {
    /// The slot as the owner sees it. Allocates: for the owner's thread.
    func output(payload: UnsafeRawBufferPointer, frameSamples: Int, device: AudioDevice) -> CaptureOutput {
        switch kind {
        case .prepared: .prepared(took: .nanoseconds(span))
        case .hears:
            .hears(
                burst: burst, after: .nanoseconds(span), really: isHearing,
                settledAfter: time < 0 ? nil : .nanoseconds(time))
        case .began: .began(burst: burst, firstSampleAt: Instant(nanoseconds: time), after: .nanoseconds(span))
        case .frame:
            .frame(
                OutgoingFrame(
                    payload: Array(payload), samples: UInt32(clamping: frameSamples),
                    capturedAt: Instant(nanoseconds: time), position: position, burst: burst, isFirst: isFirst,
                    isLast: isLast, level: level))
        case .fellSilent: .fellSilent(burst: burst)
        case .heardAgain: .heardAgain(burst: burst)
        case .lost: .lost(AudioError(fault, device: device))
        case .resumed: .resumed(gap: .nanoseconds(span))
        case .ended: .ended(burst: burst, CaptureEnd(rawValue: end) ?? .deviceFailed)
        case .failed: .failed(AudioError(fault, device: device))
        }
    }
}
