// The adapter on a real bus: without Avahi, and with a service that answers as no Avahi would.
import BusTestSupport
import DBus
import RelayProtocol
import Testing

@testable import Nearby

@Suite struct NetworkTests {
    @Test func `without Avahi it says what to do`() async throws {
        try await withBus { fixture in
            let bus = try await fixture.connect()
            let problems = Recorder<NearbyProblem?>()
            let network = NearbyNetwork(bus: bus, logger: fixture.logger) { _ in }
            await network.onProblem { problems.record($0) }
            await network.start()
            #expect(await network.problem == nil)
            await network.browse(true)
            try await problems.wait { $0.last == .some(.notInstalled) }
            #expect(problems.all.last == .some(.notInstalled))
            await network.browse(false)
            #expect(problems.all.last == .some(nil))
            await network.stop()
            await bus.close()
        }
    }

    @Test func `without a bus it says so`() async throws {
        try await withBus { fixture in
            let bus = DBusConnection(
                to: .address("unix:path=/nonexistent/bus"), on: fixture.loop, logger: fixture.logger)
            let network = NearbyNetwork(bus: bus, logger: fixture.logger) { _ in }
            await network.start()
            await network.announce(makeAnnouncement(), port: 5_000)
            #expect(await network.problem == .noBus)
            await network.stop()
        }
    }

    @Test func `a service that is no Avahi is tried again and told of`() async throws {
        try await withBus { fixture in
            let bus = try await fixture.connect()
            let other = try await fixture.connect()
            try await other.requestName("org.freedesktop.Avahi")
            let problems = Recorder<NearbyProblem?>()
            let lists = Recorder<[NearbyChannel]>()
            let network = NearbyNetwork(bus: bus, logger: fixture.logger) { lists.record($0) }
            await network.onProblem { problems.record($0) }
            await network.start()
            await network.browse(true)
            await network.announce(makeAnnouncement(), port: 5_000)
            try await problems.wait(for: 1)
            guard case .refused? = problems.all.last else {
                Issue.record("\(problems.all)")
                return
            }
            #expect(lists.all.last?.map(\.isOwn) == [true])
            try await other.releaseName("org.freedesktop.Avahi")
            try await problems.wait { $0.last == .some(.notInstalled) }
            #expect(problems.all.last == .some(.notInstalled))
            await network.stop()
            #expect(lists.all.last == [])
            #expect(await network.problem == nil)
            await bus.close()
            await other.close()
        }
    }
}
