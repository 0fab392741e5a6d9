// The kernel's links beside BlueZ's word, and the one HCI event that is read.
import Reactor
import TestSupport
import Testing

@testable import BlueZ

private let puck = BluetoothAddress("C4:00:00:00:FF:E0")!
private let clip = BluetoothAddress("C4:00:00:00:FA:CE")!

@Suite struct LELinkTests {
    @Test func `a link that ends is lost until BlueZ knows or another one is there`() {
        var links = LELinks()
        #expect(links.update([LELink(handle: 1, device: puck), LELink(handle: 2, device: clip)]).isEmpty)
        #expect(links.ended(1) == [puck] && links.lost == [puck])
        #expect(links.ended(1).isEmpty)
        links.bluezKnows(puck)
        #expect(links.lost.isEmpty)

        #expect(links.ended(2) == [clip])
        // It is back, with the number of a link that was: nobody but the kernel tells.
        #expect(links.update([LELink(handle: 1, device: clip)]) == [clip])
        #expect(links.lost.isEmpty)
        #expect(links.ended(1) == [clip])
    }

    @Test func `a link that is missing from the kernels list is lost though nobody told its end`() {
        var links = LELinks()
        _ = links.update([LELink(handle: 1, device: puck), LELink(handle: 2, device: clip)])
        #expect(links.update([LELink(handle: 2, device: clip)]) == [puck])
        #expect(links.update([LELink(handle: 2, device: clip)]).isEmpty && links.lost == [puck])
        #expect(links.update([]) == [clip])
        #expect(links.lost == [puck, clip])
    }

    @Test func `a link that was never there is not lost`() {
        var links = LELinks()
        #expect(links.ended(7).isEmpty && links.update([]).isEmpty && links.lost.isEmpty)
        links.bluezKnows(puck)
        #expect(links.lost.isEmpty)
    }

    @Test func `a device with a second link has not lost it`() {
        var links = LELinks()
        _ = links.update([LELink(handle: 1, device: puck), LELink(handle: 2, device: puck)])
        #expect(links.ended(1).isEmpty && links.lost.isEmpty)
        #expect(links.ended(2) == [puck])
    }

    @Test func `only an end that succeeded is read`() {
        // Disconnection Complete, handle 0x0123, remote user terminated connection; bits 12 to 15 are reserved.
        #expect(LELinkWatch.endedHandle(in: [0x04, 0x05, 4, 0, 0x23, 0x01, 0x13]) == 0x0123)
        #expect(LELinkWatch.endedHandle(in: [0x04, 0x05, 4, 0, 0x23, 0xf1, 0x13]) == 0x0123)
        #expect(LELinkWatch.endedHandle(in: [0x04, 0x05, 4, 0x0c, 0x23, 0x01, 0x13]) == nil)
        #expect(LELinkWatch.endedHandle(in: [0x04, 0x05, 4, 0, 0x23, 0x01]) == nil)
        #expect(LELinkWatch.endedHandle(in: [0x04, 0x05, 3, 0, 0x23, 0x01, 0x13]) == nil)
        #expect(LELinkWatch.endedHandle(in: [0x04, 0x0e, 4, 0, 0x23, 0x01, 0x13]) == nil)
        #expect(LELinkWatch.endedHandle(in: [0x02, 0x05, 4, 0, 0x23, 0x01, 0x13]) == nil)
    }

    @Test func `garbage is no end`() {
        var random = SeededGenerator()
        for _ in 0..<20_000 {
            var packet = (0..<Int.random(in: 0...12, using: &random)).map { _ in
                UInt8.random(in: 0...255, using: &random)
            }
            if packet.count > 1, Bool.random(using: &random) { packet.replaceSubrange(0...1, with: [0x04, 0x05]) }
            if let handle = LELinkWatch.endedHandle(in: packet) { #expect(handle <= 0x0fff && packet.count >= 7) }
        }
    }

    /// Whatever the machine has: there is no adapter of this number.
    @Test func `an adapter that is not there cannot be listened to`() async throws {
        let expected: [LEConnectionError] = [.noBluetooth, .noAdapter]
        let loop = try EventLoop(name: "links")
        defer { loop.stop() }
        let error = try await loop.run {
            #expect(throws: LEConnectionError.self) {
                _ = try LELinkWatch(adapter: 65_535, loop: loop, onEnd: { _ in }, onLoss: {})
            }
        }
        #expect(error.map { expected.contains($0) } == true, "\(String(describing: error))")
    }
}
