// Inhibitor locks: taken, listed, released by closing, bounded, and without leaks.
import BusTestSupport
import DBus
import DaemonAPI
import Glibc
import PTTBus
import PushToTalkCore
import Testing

@Suite(.timeLimit(.minutes(1))) struct InhibitorTests {
    @Test func `a lock lasts until the last copy is closed`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let expected = Inhibitor(
                what: "call", who: "Linphone", why: "a call with Jane", processID: UInt32(getpid()))
            var copy: Int32
            do {
                let lock = try await served.client.inhibit(who: "Linphone", why: "a call with Jane")
                #expect(fcntl(lock.number, F_GETFD) & FD_CLOEXEC != 0)
                // Told before it was given out.
                #expect(served.controls.asked.all == [.calls([expected])])
                #expect(try await served.client.inhibitors() == [expected])
                copy = fcntl(lock.number, F_DUPFD_CLOEXEC, 0)
            }
            // What is written into it is nobody's business.
            #expect(write(copy, "hello", 5) == 5)
            #expect(try await served.client.inhibitors() == [expected])
            close(copy)
            #expect(try await served.controls.asked.wait(for: 2) == [.calls([expected]), .calls([])])
            #expect(try await served.client.inhibitors().isEmpty)
            await served.close()
        }
    }

    @Test func `a caller that dies lets go`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            // Asked for, and never read from the socket.
            let hasty = try await fixture.connect()
            try await hasty.send(
                destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.managerInterface, method: "Inhibit",
                arguments: [.string("call"), .string("Hasty"), .string("gone")])
            try await served.controls.asked.wait(for: 1)
            await hasty.close()
            #expect(try await eventually { try await served.client.inhibitors().isEmpty })
            await served.close()
        }
    }

    @Test func `locks are bounded for one caller and for all`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            var locks: [DBusDescriptor] = []
            for _ in 0..<PTTBusLimits.locksPerCaller {
                locks.append(try await served.client.inhibit(who: "A", why: ""))
            }
            let error = await errorOf { _ = try await served.client.inhibit(who: "A", why: "") }
            #expect(error?.name == "org.freedesktop.DBus.Error.LimitsExceeded")
            #expect(error?.message.contains("\(PTTBusLimits.locksPerCaller)") == true)
            var others: [DaemonClient] = []
            while locks.count < PTTBusLimits.locks {
                let other = try await Served.client(fixture)
                others.append(other)
                for _ in 0..<PTTBusLimits.locksPerCaller { locks.append(try await other.inhibit(who: "B", why: "")) }
            }
            let last = try await Served.client(fixture)
            #expect(
                await errorOf { _ = try await last.inhibit(who: "C", why: "") }?.name
                    == "org.freedesktop.DBus.Error.LimitsExceeded")
            locks = []
            #expect(try await eventually { try await served.client.inhibitors().isEmpty })
            let lock = try await last.inhibit(who: "C", why: "")
            #expect(try await served.client.inhibitors().map(\.who) == ["C"])
            withExtendedLifetime(lock) {}
            for other in others { await other.close() }
            await last.close()
            await served.close()
        }
    }

    @Test func `a thousand locks leave no descriptor behind`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture, isBounded: false)
            _ = try await served.client.inhibit(who: "A", why: "first")
            #expect(try await eventually { try await served.client.inhibitors().isEmpty })
            let before = openDescriptors()
            let start = ContinuousClock.now
            for _ in 0..<1_000 {
                let lock = try await served.client.inhibit(who: "A", why: "again")
                withExtendedLifetime(lock) {}
            }
            #expect(try await eventually { try await served.client.inhibitors().isEmpty })
            print(
                "1,000 locks in \(ContinuousClock.now - start), descriptors \(before) before, \(openDescriptors()) after"
            )
            #expect(try await eventually { openDescriptors() <= before })
            await served.close()
        }
    }

    @Test func `locks end with the daemon`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let lock = try await served.client.inhibit(who: "A", why: "")
            await served.api.stop()
            var poll = pollfd(fd: lock.number, events: 0, revents: 0)
            #expect(Glibc.poll(&poll, 1, 1_000) == 1)
            #expect(poll.revents & Int16(POLLERR) != 0, "the holder can tell that nobody has the other end")
            await served.client.close()
        }
    }
}
