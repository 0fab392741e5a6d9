// rtkit as a service of the test's own on a private bus: what it is asked, and what comes of its answers.
import BusTestSupport
import CLinux
import DBus
import Glibc
import Reactor
import Synchronization
import Testing

@testable import RealTimeKit

@Suite(.serialized) struct RealTimeKitTests {
    private struct Asked: Equatable {
        var process: UInt64
        var thread: UInt64
        var priority: DBusValue
    }

    /// A service under rtkit's name that gives priorities up to `most`, or refuses with `refusal`.
    private func serve(
        _ fixture: BusFixture, most: Int32 = 20, refusal: DBusErrorReply? = nil,
        asked: @escaping @Sendable (Asked) -> Void
    ) async throws -> DBusConnection {
        let service = try await fixture.connect()
        let interface = DBusInterface(
            RealTimeKit.name,
            methods: [
                .init(
                    "MakeThreadRealtimeWithPID",
                    in: [.init("process", .uint64), .init("thread", .uint64), .init("priority", .uint32)]),
                .init(
                    "MakeThreadHighPriorityWithPID",
                    in: [.init("process", .uint64), .init("thread", .uint64), .init("priority", .int32)]),
            ],
            properties: [.init("MaxRealtimePriority", .int32), .init("RTTimeUSecMax", .int64)])
        let handler: DBusMethodHandler = { call throws(DBusErrorReply) in
            if let refusal { throw refusal }
            guard case .uint64(let process)? = call.arguments.first, case .uint64(let thread) = call.arguments[1]
            else { throw .failed("other arguments") }
            asked(Asked(process: process, thread: thread, priority: call.arguments[2]))
            return []
        }
        try await service.export(
            [
                try DBusExport(
                    interface,
                    properties: ["MaxRealtimePriority": .int32(most), "RTTimeUSecMax": .int64(10_000_000)],
                    methods: ["MakeThreadRealtimeWithPID": handler, "MakeThreadHighPriorityWithPID": handler])
            ], at: RealTimeKit.path)
        try await service.requestName(RealTimeKit.name)
        return service
    }

    @Test func `it asks for the thread of this process and limits its processor time`() async throws {
        try await withBus { fixture in
            let asked = Mutex<[Asked]>([])
            let service = try await serve(fixture) { question in asked.withLock { $0.append(question) } }
            let kit = RealTimeKit(on: try await fixture.connect())
            try await kit.makeRealTime(thread: 4711, priority: 10)
            #expect(asked.withLock { $0 } == [Asked(process: UInt64(getpid()), thread: 4711, priority: .uint32(10))])
            let limits = try String(decoding: readAll("/proc/self/limits"), as: UTF8.self).split(separator: "\n")
            let limit = try #require(limits.first { $0.hasPrefix("Max realtime timeout") })
            // A test before may have made it less. The soft limit comes first, and costs a thread its priority only.
            let numbers = limit.split(separator: " ").compactMap { Int($0) }
            #expect(numbers.count == 2 && numbers[0] < numbers[1] && numbers[1] <= 10_000_000, "\(limit)")
            await service.close()
        }
    }

    @Test func `a priority above its limit is not asked for`() async throws {
        try await withBus { fixture in
            let asked = Mutex<[Asked]>([])
            let service = try await serve(fixture, most: 5) { question in asked.withLock { $0.append(question) } }
            let kit = RealTimeKit(on: try await fixture.connect())
            await #expect(throws: RealTimeKitError.priorityTooHigh(wanted: 10, most: 5)) {
                try await kit.makeRealTime(thread: 1, priority: 10)
            }
            #expect(asked.withLock { $0.isEmpty })
            await service.close()
        }
    }

    @Test func `a refusal is told in its words`() async throws {
        try await withBus { fixture in
            let service = try await serve(fixture, refusal: .accessDenied("not for you")) { _ in }
            let kit = RealTimeKit(on: try await fixture.connect())
            await #expect {
                try await kit.makeRealTime(thread: 1, priority: 10)
            } throws: { error in
                guard case .refused(let reason)? = error as? RealTimeKitError else { return false }
                return reason.contains("not for you")
            }
            await service.close()
        }
    }

    @Test func `without RT kit the error says so`() async throws {
        try await withBus { fixture in
            let kit = RealTimeKit(on: try await fixture.connect())
            await #expect(throws: RealTimeKitError.notThere) {
                try await kit.makeRealTime(thread: 1, priority: 10)
            }
        }
    }

    @Test func `threads that want it before the bus is there wait and are asked for when it comes`() async throws {
        try await withBus { fixture in
            let asked = Mutex<[Asked]>([])
            let service = try await serve(fixture) { question in asked.withLock { $0.append(question) } }
            let bus = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
            let requests = RealTimeRequests(RealTimeKit(on: bus), logger: fixture.logger)
            requests.add(thread: 5, priority: .realTime(10))
            requests.add(thread: 6, priority: .high(niceness: -11))
            await requests.ask()
            #expect(requests.waiting == 2 && asked.withLock { $0.isEmpty })
            try await bus.connect()
            #expect(try await eventually { requests.waiting == 0 })
            #expect(asked.withLock { $0.map(\.thread) } == [5, 6])
            #expect(asked.withLock { $0.map(\.priority) } == [.uint32(10), .int32(-11)])
            await bus.close()
            await service.close()
        }
    }

    @Test(.enabled(if: geteuid() == 0, "only root's threads may raise themselves"))
    func `a thread that may raises itself and what it starts is ordinary again`() async throws {
        try await withBus { fixture in
            let loop = try EventLoop(name: "raised")
            let requests = RealTimeRequests(RealTimeKit(on: try await fixture.connect()), logger: fixture.logger)
            let (own, child) = try await loop.run {
                requests.raiseThisThread()
                let made = try EventLoop(name: "made")
                return (getpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0), made)
            }
            #expect(own == -11)
            #expect(try await child.run { getpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0) } == 0)
            #expect(requests.waiting == 0)
            loop.stop()
            child.stop()
        }
    }

    private func readAll(_ path: String) throws -> [UInt8] {
        let file = try #require(fopen(path, "r"))
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        let count = fread(&bytes, 1, bytes.count, file)
        return Array(bytes[..<count])
    }
}
