// Every sample from the press to the end of the tail is forwarded, in order and once, however late the floor comes.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

/// A talker and the floor of a relay, with a network between them that is late and overtakes; a clock of its own.
private struct TalkerAndFloor {
    private enum Delivery {
        case request(FloorRequestID)
        case release(FloorRequestID, UInt16?)
        case media(UplinkStateMachine.MediaFrame)
        case granted(FloorRequestID)
        case frame(OutgoingFrame)
        case end
    }

    private static let talker = SSRC(rawValue: 7)
    var random: SeededGenerator
    private(set) var now = Instant(nanoseconds: 1_000_000_000)
    private var uplink: UplinkStateMachine
    private var floor = FloorControlStateMachine()
    private var queue: [(at: Instant, order: Int, delivery: Delivery)] = []
    private var order = 0
    private var streamUp = Instant.zero
    /// What the relay forwarded: the index of the first sample by RTP time stamp, of the present burst.
    private(set) var forwarded: [(timestamp: UInt32, sample: Int, marker: Bool)] = []
    private(set) var end: TransmissionEnd?
    private(set) var dropped = 0
    var floorDelay = Duration.zero

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        uplink = UplinkStateMachine(firstSequence: 65_000, timestampAtZero: .max - 148_000)
        _ = uplink.handle(.linkReady, at: now)
    }

    private mutating func after(_ delay: Duration, _ delivery: Delivery) {
        order += 1
        queue.append((now + delay, order, delivery))
    }

    private mutating func carryOut(_ actions: [UplinkStateMachine.Action]) {
        for action in actions {
            switch action {
            case .requestFloor(let id, _):
                streamUp = max(streamUp, now)
                after(streamUp - now, .request(id))
            case .releaseFloor(let id, let last):
                // The stream is in order; datagrams overtake it and each other.
                streamUp = max(streamUp, now + .milliseconds(Int.random(in: 0...20, using: &random)))
                after(streamUp - now, .release(id, last))
            case .sendMedia(_, let frame): after(.milliseconds(Int.random(in: 0...40, using: &random)), .media(frame))
            case .tell(.transmissionEnded(_, let end, _)): self.end = end
            case .tell: break
            }
        }
    }

    private mutating func carryOut(_ actions: [FloorControlStateMachine.Action]) {
        for case .grant(let request, _) in actions { after(floorDelay, .granted(request.requestID)) }
    }

    private mutating func deliver(_ delivery: Delivery) {
        switch delivery {
        case .request(let id):
            let request = FloorControlStateMachine.Request(
                ssrc: Self.talker, requestID: id, keyID: UInt64(id.rawValue))
            carryOut(floor.handle(.request(request), at: now))
        case .release(let id, let last):
            carryOut(floor.handle(.release(ssrc: Self.talker, requestID: id, lastSequence: last), at: now))
        case .media(let frame):
            let key = floor.holder?.keyID ?? 0
            guard
                case .forward(_, let ends) = floor.media(
                    ssrc: Self.talker, keyID: key, sequence: frame.sequence, marker: frame.marker, at: now)
            else {
                dropped += 1
                return
            }
            let sample = frame.payload.reduce(0) { $0 << 8 | Int($1) }
            forwarded.append((frame.timestamp, sample, frame.marker))
            if ends { carryOut(floor.handle(.deadline, at: now)) }
        case .granted(let id): carryOut(uplink.handle(.granted(id, duration: .seconds(60)), at: now))
        case .frame(let frame): carryOut(uplink.handle(.frame(frame), at: now))
        case .end: carryOut(uplink.handle(.end, at: now))
        }
    }

    /// Speaks from the press on, and runs until all is over: each frame is there when its last sample was at the microphone.
    mutating func speak(_ burst: UInt32, frameSamples: Int, frames: Int) {
        (forwarded, end) = ([], nil)
        let length = Duration.nanoseconds(Int64(frameSamples) * 1_000_000 / 48)
        carryOut(uplink.handle(.begin(BurstID(number: burst), priority: 0), at: now))
        for number in 0..<frames {
            let sample = number * frameSamples
            let payload = [UInt8(sample >> 16 & 255), UInt8(sample >> 8 & 255), UInt8(sample & 255)]
            let frame = OutgoingFrame(
                payload: payload, samples: UInt32(frameSamples), capturedAt: now + length * number)
            after(length * (number + 1), .frame(frame))
        }
        after(length * frames, .end)
        while let next = nextStep() {
            now = max(now, next)
            if let due = floor.nextDeadline, due <= now { carryOut(floor.handle(.deadline, at: now)) }
            if let due = uplink.nextDeadline, due <= now { carryOut(uplink.handle(.deadline, at: now)) }
            let due = queue.filter { $0.at <= now }.sorted { ($0.at, $0.order) < ($1.at, $1.order) }
            queue.removeAll { $0.at <= now }
            for item in due { deliver(item.delivery) }
        }
    }

    private func nextStep() -> Instant? {
        (queue.map(\.at) + [floor.nextDeadline, uplink.nextDeadline].compactMap { $0 }).min()
    }
}

@Suite struct ClippingTests {
    @Test(arguments: [480, 960])
    func `in 200 presses no sample is missing at the start or at the end`(frameSamples: Int) {
        let seed = SeededGenerator.seed()
        var world = TalkerAndFloor(seed: seed)
        for press in 1...200 {
            world.floorDelay = .milliseconds(Int.random(in: 0...500, using: &world.random))
            let frames = Int.random(in: 1...150, using: &world.random)
            world.speak(UInt32(press), frameSamples: frameSamples, frames: frames)
            #expect(world.end == .completed, "press \(press), seed \(seed)")
            let heard = world.forwarded.sorted { $0.sample < $1.sample }
            #expect(
                heard.map(\.sample) == (0..<frames).map { $0 * frameSamples }, "press \(press), seed \(seed)")
            guard let first = heard.first else { continue }
            #expect(first.marker)
            #expect(heard.allSatisfy { Int($0.timestamp &- first.timestamp) == $0.sample }, "the clock is the samples'")
        }
        #expect(world.dropped == 0, "seed \(seed)")
    }
}
