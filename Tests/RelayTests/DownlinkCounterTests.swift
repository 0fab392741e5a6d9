// The counter of what goes down one connection is never used twice: when it is used up, the connection is.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite(.serialized, .timeLimit(.minutes(1))) struct DownlinkCounterTests {
    @Test(arguments: [1, 3])
    func `a listener whose packets are all counted is closed with code 6, and the others hear on`(workers: Int)
        async throws
    {
        let relay = try await TestRelay {
            $0.limits.downlinkPackets = 12
            $0.workers = workers
        }
        let alice = try await TestClient.joined("Alice", relay)
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay)
        try await alice.talk(1, frames: 20)
        #expect(try await mallory.closeCode() == .internalError)
        let opener = try TrailerOpener(key: welcome.downlinkKey)
        let counters = mallory.recorder.events.compactMap { event -> [UInt8]? in
            if case .media(let packet) = event { packet } else { nil }
        }
        #expect(counters.count <= 12)
        for packet in counters { #expect(throws: Never.self) { try opener.open(packet) } }
        // A client comes back by itself, with another key, and hears what is said then.
        let bob = try await TestClient.joined("Bob", relay)
        try await alice.talk(2, frames: 20)
        let lost = try await bob.recorder.wait("the end of the link") {
            if case .state(.unavailable) = $0 { true } else { nil }
        }.1
        let ready = try await bob.untilReady(from: lost)
        try await alice.talk(3, frames: 5)
        try await bob.recorder.wait("the next burst", from: ready) {
            if case .frame(let frame) = $0, frame.payload == TestClient.payload(3, 4) { true } else { nil }
        }
        await relay.server.stop()
    }
}
