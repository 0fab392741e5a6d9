// The fake itself: its arguments, its commands, and its socket.
import BlueZ
import BusTestSupport
import DBus
import Glibc
import MonotonicTime
import Testing

@testable import FakeBlueZ

@Suite struct FakeBlueZTests {
    @Test func `a button is given as NAME=PROFILE and maybe an address`() throws {
        let button = try #require(Peripheral("Left=ptt-z", index: 10))
        #expect(button.name == "Left")
        #expect(button.address == "C4:00:00:00:00:0A")
        #expect(button.profile.pressed == [1])
        #expect(Peripheral("R=aina-v2,c4:11:11:11:11:11", index: 1)?.address == "C4:11:11:11:11:11")
        for bad in ["", "Left", "Left=", "Left=none", "Left=ptt-z,nonsense"] {
            #expect(Peripheral(bad, index: 1) == nil)
        }
    }

    @Test func `commands are answered over the socket, in order`() async throws {
        try await World.run { world in
            _ = try await world.connectButton()
            let path = world.fixture.bus.directory + "/commands"
            let fake = world.fake
            let server = CommandServer(path: path, loop: world.fixture.loop) { await fake.perform($0) }
            try await server.start()
            let before = Instant.now.nanoseconds
            let answers = try await Self.exchange(
                path, "B press\r\nB release\nB state\nB battery 101\nnobody press\nB\n\nadapter on\n", answers: 8)
            #expect(answers.count == 8)
            for answer in answers.prefix(2) {
                let time = try #require(answer.split(separator: " ").first { $0.hasPrefix("t=") })
                let nanoseconds = try #require(Int64(time.dropFirst(2)))
                #expect(nanoseconds >= before && nanoseconds <= Instant.now.nanoseconds)
            }
            #expect(answers[2] == "ok connections=1 advertising=0 subscribers=1")
            #expect(answers[3...6].allSatisfy { $0.hasPrefix("err ") })
            #expect(answers[7] == "ok present=1 powered=1")
            try await world.waitForValues([[1], [0]])
            await server.stop()
        }
    }

    @Test(arguments: PeripheralProfile.all.filter { !$0.isSerial })
    func `each profile is found, connected and pressed`(profile: PeripheralProfile) async throws {
        try await World.run(profile: profile.name) { world in
            let characteristic = try await world.connectButton()
            let known = try #require(await world.client.characteristic(characteristic))
            #expect(known.uuid?.rawValue == profile.characteristic)
            #expect(known.service?.rawValue == profile.service)
            _ = await world.fake.perform("B press")
            _ = await world.fake.perform("B release")
            try await world.waitForValues([profile.pressed, profile.released])
        }
    }

    /// Sends lines and waits for that many in return, without blocking the loop that answers.
    private static func exchange(_ path: String, _ lines: String, answers: Int) async throws -> [String] {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let connected = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(connected == 0)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        let bytes = Array(lines.utf8)
        #expect(bytes.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) } == bytes.count)
        var received: [UInt8] = []
        let deadline = Instant.now + .seconds(5)
        while received.count(where: { $0 == 0x0a }) < answers, Instant.now < deadline {
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = read(descriptor, &buffer, buffer.count)
            if count > 0 { received += buffer[..<count] } else { try await Task.sleep(for: .milliseconds(2)) }
        }
        return String(decoding: received, as: UTF8.self).split(separator: "\n").map(String.init)
    }
}
