// The microphone of one pttd: the shipped rules of capture over a simulated device, with what `CaptureWorker` and the microphone's half
// of `DeviceAudioSession` do around them.
import MonotonicTime
import PushToTalkCore
import Vocabulary

@testable import Audio

/// Which samples a frame carries: what a packet's payload says instead of sound.
struct Speech: Hashable, Sendable {
    static let byteCount = 13
    /// The first byte of an Opus packet of one frame of 40 ms (RFC 6716, section 3.1).
    private static let contents: UInt8 = 2 << 3
    /// Samples of a whole frame: 40 ms, longer than in life, for there are fewer to simulate.
    static let frameSamples = 1_920

    var device: UInt8
    /// Which pttd of that device, counted from 0.
    var life: UInt8
    var burst: UInt32
    var position: UInt32
    var count: UInt16

    var bytes: [UInt8] {
        var bytes = [Self.contents, device, life]
        for shift in [24, 16, 8, 0] { bytes.append(UInt8(truncatingIfNeeded: burst >> UInt32(shift))) }
        for shift in [24, 16, 8, 0] { bytes.append(UInt8(truncatingIfNeeded: position >> UInt32(shift))) }
        return bytes + [UInt8(truncatingIfNeeded: count >> 8), UInt8(truncatingIfNeeded: count)]
    }

    init(device: UInt8, life: UInt8, burst: UInt32, position: UInt32, count: UInt16) {
        (self.device, self.life, self.burst, self.position, self.count) = (device, life, burst, position, count)
    }

    init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.byteCount, bytes[0] == Self.contents else { return nil }
        device = bytes[1]
        life = bytes[2]
        burst = bytes[3..<7].reduce(0) { $0 << 8 | UInt32($1) }
        position = bytes[7..<11].reduce(0) { $0 << 8 | UInt32($1) }
        count = UInt16(bytes[11]) << 8 | UInt16(bytes[12])
    }
}

/// What a microphone tells its channel service.
enum MicrophoneEvent {
    case began
    case frame(OutgoingFrame)
    case ended
    case failed(String)
}

final class Microphone {
    /// The device gives samples so often.
    static let period = Duration.milliseconds(20)
    static let tail = Duration.milliseconds(200)

    private unowned let process: Process
    private let world: World
    private let clock: MachineClock
    private(set) var rules = CaptureStateMachine()
    private var numbers: UInt32 = 0
    /// The burst whose output counts, and the one that was cut last.
    private(set) var current: UInt32?
    private var cut: UInt32?
    private var abortPending = false
    private var framed: Int64 = 0
    /// It waits for the go-ahead tone, which is heard then.
    private var goAheadAt: Instant?
    private var isWaitingForGoAhead = false
    private var turn: UInt64 = 0
    private var lastRead = Instant.zero
    /// When the tail of the burst must be over.
    private(set) var tailEnd: Instant?
    private var outputs: [Output] = []
    private var isDrainDue = false
    var handler: (MicrophoneEvent) -> Void = { _ in }

    /// What crosses from the capture thread to the loop.
    private enum Output {
        case began(UInt32)
        case frame(OutgoingFrame, Speech)
        case ended(UInt32)
        case failed(UInt32)
    }

    init(process: Process) {
        self.process = process
        world = process.world
        clock = process.device.clock
    }

    private var isBroken: Bool { world.now < process.device.microphoneBrokenUntil }

    var isRunning: Bool { rules.isRunning }

    // MARK: What the channel service asks

    func start(_ start: CaptureStart) {
        abortPending = false
        numbers += 1
        current = numbers
        tailEnd = nil
        let goesOn = rules.isRunning && start == .atOnce
        if rules.isRunning { finish() }
        let result = rules.start(burst: numbers, at: clock.now, goesOn: goesOn)
        framed = 0
        isWaitingForGoAhead = start == .afterGoAhead
        goAheadAt = isWaitingForGoAhead ? clock.now + .milliseconds(120) : nil
        switch result {
        case .goOn:
            if rules.firstSampleAt != nil { put(.began(rules.burst)) }
        case .openAndRun, .run:
            turn += 1
            let delay: Duration = result == .run ? .milliseconds(4) : .milliseconds(40)
            lastRead = clock.now + delay
            read(after: delay + Self.period, turn)
        }
    }

    func stop(_ stop: ChannelManagerStateMachine.CaptureStop) {
        switch stop {
        case .afterTail:
            guard rules.isRunning else { return }
            let end = clock.now + Self.tail
            tailEnd = end
            guard rules.stop(end: end) else { return }
            // What was said before the go-ahead is nobody's.
            if isWaitingForGoAhead { complete() }
        case .immediately:
            deliverFrames()
            abortPending = true
            process.later { [self] in
                guard abortPending else { return }
                abortPending = false
                abort()
            }
        case .discarding:
            (current, cut) = (nil, nil)
            abort()
        }
    }

    func prepare() { if rules.prepare() { rules.opened() } }

    /// The go-ahead tone is heard, or there is no speaker for it.
    private func goAhead() {
        isWaitingForGoAhead = false
        goAheadAt = nil
    }

    // MARK: The device

    private func read(after time: Duration, _ turn: UInt64) {
        clock.after(time) { [self] in
            guard turn == self.turn, process.isAlive, rules.isRunning else { return }
            guard !isBroken else { return fail() }
            let first = lastRead
            lastRead = clock.now
            take(from: first)
            if rules.isRunning { read(after: Self.period, turn) }
        }
    }

    private func take(from first: Instant) {
        var first = first
        if let goAheadAt {
            guard goAheadAt <= clock.now else { return }
            first = max(first, goAheadAt)
            goAhead()
        }
        if rules.firstSampleAt == nil {
            rules.began(at: first)
            put(.began(rules.burst))
        }
        _ = rules.take(Int(CaptureStateMachine.samples(clock.now - first)))
        let last = (rules.firstSampleAt ?? first) + CaptureStateMachine.duration(rules.position)
        if let tailEnd, last > tailEnd + .milliseconds(1) {
            world.fail("I1", "\(process.name) records \(last - tailEnd) beyond the end of the tail")
        }
        while rules.position - framed >= Int64(Speech.frameSamples) { put(Speech.frameSamples) }
        if rules.isComplete { complete() }
    }

    /// Puts out what was taken and is no frame yet.
    private func finish() { if rules.position > framed { put(Int(rules.position - framed)) } }

    private func put(_ count: Int) {
        let burst = rules.burst
        let speech = Speech(
            device: UInt8(process.device.number), life: UInt8(truncatingIfNeeded: process.life), burst: burst,
            position: UInt32(framed), count: UInt16(count))
        let frame = OutgoingFrame(
            payload: speech.bytes, samples: UInt32(Speech.frameSamples),
            capturedAt: (rules.firstSampleAt ?? clock.now) + CaptureStateMachine.duration(framed),
            position: UInt32(framed), burst: burst, isFirst: framed == 0)
        framed += Int64(count)
        put(.frame(frame, speech))
    }

    private func complete() {
        finish()
        end()
        put(.ended(rules.burst))
    }

    private func abort() { if rules.isRunning { end() } }

    private func fail() {
        finish()
        end(deviceOpen: false)
        put(.failed(rules.burst))
    }

    private func end(deviceOpen: Bool = true) {
        turn += 1
        rules.ended(deviceOpen: deviceOpen)
        isWaitingForGoAhead = false
        goAheadAt = nil
    }

    // MARK: Out

    private func put(_ output: Output) {
        outputs.append(output)
        guard !isDrainDue else { return }
        isDrainDue = true
        process.later { [self] in
            isDrainDue = false
            let waiting = outputs
            outputs = []
            for output in waiting { received(output) }
        }
    }

    /// Delivers what has been recorded of the transmission that is cut.
    private func deliverFrames() {
        cut = current
        current = nil
        let waiting = outputs
        outputs = []
        for output in waiting {
            if case .frame(let frame, let speech) = output, frame.burst == cut {
                deliver(frame, speech)
            } else {
                received(output)
            }
        }
    }

    private func deliver(_ frame: OutgoingFrame, _ speech: Speech) {
        process.ledger.framed(speech)
        handler(.frame(frame))
    }

    private func received(_ output: Output) {
        switch output {
        case .began(let burst): if burst == current { handler(.began) }
        case .frame(let frame, let speech): if frame.burst == current { deliver(frame, speech) }
        case .ended(let burst):
            guard burst == current else { return }
            current = nil
            handler(.ended)
        case .failed(let burst):
            guard burst == current else { return }
            current = nil
            handler(.failed("the microphone is gone"))
        }
    }
}
