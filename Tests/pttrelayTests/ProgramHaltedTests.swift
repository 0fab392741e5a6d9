// The program is halted while somebody talks (SIGSTOP, as a debugger, a hypervisor or a starved machine does it), and goes on.
import Glibc
import MonotonicTime
import RelayClient
import RelayProtocol
import Synchronization
import TestSupport
import Testing
import Vocabulary

@testable import pttrelay

/// Halts, in seconds. More of them: `PTT_RELAY_HALTS=1,12,30`.
private let halts =
    getenv("PTT_RELAY_HALTS").map { String(cString: $0).split(separator: ",").compactMap { Int($0) } } ?? [1, 3, 5, 8]

@Suite struct ProgramHaltedTests {
    /// A talker that is not heard is told so by then: the client's time limit for a relay that answers nothing, and a busy machine.
    private static let bound = Duration.seconds(4) + .seconds(2)
    /// Everything works again by then after a halt.
    private static let recovery = Duration.seconds(10)

    @Test(.timeLimit(.minutes(5)))
    func `a talker is told in time that a halted relay does not hear it, and afterwards everybody hears everybody`()
        async throws
    {
        // Beside each other: most of the time goes by with waiting.
        try await withThrowingTaskGroup(of: Void.self) { group in
            for seconds in halts {
                group.addTask {
                    let told = try await attempts(3, until: { $0 < Self.bound }) {
                        try await talk(throughHaltOf: seconds)
                    }
                    #expect(told < Self.bound, "what was said so long before is missed after a halt of \(seconds) s")
                }
            }
            try await group.waitForAll()
        }
    }

    /// Somebody talks through a halt. How long what was said is missed before the talker was told so; and everything works again.
    private func talk(throughHaltOf seconds: Int) async throws -> Duration {
        let program = try RunningProgram()
        let link = try program.standing
        let talker = try await Person("Ada", link)
        let listeners = [try await Person("Bob", link), try await Person("Cid", link)]

        let halt = Task {
            try await Task.sleep(for: .seconds(1))
            kill(program.process, SIGSTOP)
            try await Task.sleep(for: .seconds(seconds))
            kill(program.process, SIGCONT)
            return Instant.now
        }
        let burst = try await talker.talk(frames: (seconds + 4) * 50)
        let comment: Comment = "halted for \(seconds) s: \(burst)"
        let resumedAt = try await halt.value
        var longest = Duration.zero
        for listener in listeners where burst.begins {
            // What is repaired comes within moments; of a burst that is said to be complete, everything comes.
            try await listener.hears(burst, within: burst.end == .completed ? .seconds(10) : .seconds(2))
            guard let first = listener.missing(of: burst) else { continue }
            #expect(
                burst.end != .completed, "\(listener.name) has not heard frame \(first), and nobody said so; \(comment)"
            )
            longest = max(longest, burst.endedAt - burst.saidAt[first])
        }
        // Nobody has to do anything for this.
        var again = burst
        var isWhole = false
        repeat {
            again = try await talker.talk(frames: 25)
            isWhole = again.end == .completed
            for listener in listeners {
                try await listener.hears(again, within: .seconds(1))
                isWhole = isWhole && listener.missing(of: again) == nil
            }
        } while !isWhole && Instant.now < resumedAt + .seconds(seconds > 20 ? 25 : 0) + Self.recovery + .seconds(2)
        let took = again.saidAt.first.map { $0 - resumedAt }
        #expect(isWhole, "after a halt of \(seconds) s the channel does not work again: \(again)")
        #expect(program.isRunning)
        print(
            "halted for \(seconds) s: \(burst); whole again after \(took.map { "\($0.milliseconds) ms" } ?? "no time")")
        return longest
    }
}

/// Somebody with a radio: says numbered frames, and notes which frames of others are heard.
private final class Person: Sendable {
    struct Burst: CustomStringConvertible {
        var number: UInt8
        var saidAt: [Instant] = []
        var end: TransmissionEnd?
        var endedAt = Instant.now
        /// Whether it got as far as to be heard at all.
        var begins: Bool { end != .notAnswered && end != .linkUnavailable }
        var description: String {
            let told = saidAt.first.map { "\((endedAt - $0).milliseconds) ms" } ?? "nothing"
            return "\(saidAt.count) frames said, \(end.map { "\($0)" } ?? "no end") after \(told)"
        }
    }

    let name: String
    private let device: Device
    private let state = Mutex(State())

    fileprivate struct State {
        var heard: [UInt8: Set<Int>] = [:]
        var ends: [BurstID: (TransmissionEnd, Instant)] = [:]
        var bursts: UInt8 = 0
    }

    init(_ name: String, _ link: InvitationLink) async throws {
        self.name = name
        device = try await Device(name, link)
        try await device.isReady()
        await device.client.setEventHandler { [weak self] event in self?.state.withLock { $0.handle(event) } }
    }

    /// Says so many frames of 20 ms in their time, unless it is told that the burst is over; until it is told how that ended.
    func talk(frames: Int) async throws -> Burst {
        var burst = Burst(
            number: state.withLock {
                $0.bursts += 1; return $0.bursts
            })
        let id = await device.client.beginBurst(priority: FloorPriority.normal)
        let begun = Instant.now
        for frame in 0..<frames where state.withLock({ $0.ends[id] == nil }) {
            let now = Instant.now
            burst.saidAt.append(now)
            await device.client.send(
                OutgoingFrame(
                    payload: [burst.number, UInt8(frame >> 8), UInt8(frame & 255)], samples: 960, capturedAt: now))
            let next = begun + .milliseconds(20) * (frame + 1)
            let pause = next - Instant.now
            if pause > .zero { try await Task.sleep(for: pause) }
        }
        await device.client.endBurst()
        try await poll(for: .seconds(20)) { $0.ends[id] != nil }
        if let (end, at) = state.withLock({ $0.ends[id] }) { (burst.end, burst.endedAt) = (end, at) }
        return burst
    }

    /// Waits until all of the burst was heard, or for so long.
    func hears(_ burst: Burst, within time: Duration) async throws {
        try await poll(for: time) { $0.heard[burst.number, default: []].count >= burst.saidAt.count }
    }

    /// The first frame of it that was not heard.
    func missing(of burst: Burst) -> Int? {
        let heard = state.withLock { $0.heard[burst.number, default: []] }
        return burst.saidAt.indices.first { !heard.contains($0) }
    }

    private func poll(for time: Duration, _ isSo: @Sendable (State) -> Bool) async throws {
        let deadline = Instant.now + time
        while !state.withLock({ isSo($0) }), Instant.now < deadline { try await Task.sleep(for: .milliseconds(5)) }
    }
}

extension Person.State {
    fileprivate mutating func handle(_ event: RelayLinkEvent) {
        switch event {
        case .frame(let frame) where frame.payload.count == 3:
            heard[frame.payload[0], default: []].insert(Int(frame.payload[1]) << 8 | Int(frame.payload[2]))
        case .transmissionEnded(let id, let end, _): ends[id] = (end, .now)
        default: break
        }
    }
}
