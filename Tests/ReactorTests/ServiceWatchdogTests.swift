import Glibc
import MonotonicTime
import Reactor
import Synchronization
import Testing

@Suite struct ServiceWatchdogTests {
    private func request(_ environment: [String: String], process: Int32 = 7) -> ServiceWatchdog.Request? {
        ServiceWatchdog.Request(environment: { environment[$0] }, process: process)
    }

    @Test func onlyTheProcessThatSystemdAsksAnswers() {
        let asked = ["NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"]
        #expect(request(asked) == .init(socket: "/run/notify", interval: .seconds(30)))
        #expect(request(asked, process: 8) == nil)
        #expect(request(asked.filter { $0.key != "WATCHDOG_PID" }) != nil)
        #expect(request(asked.filter { $0.key != "NOTIFY_SOCKET" }) == nil)
        #expect(request(asked.filter { $0.key != "WATCHDOG_USEC" }) == nil)
    }

    @Test(arguments: ["", "0", "-5", "soon", "99999999999999999999999"])
    func anIntervalThatIsNoneIsNotAnswered(microseconds: String) {
        #expect(request(["NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": microseconds]) == nil)
    }

    @Test(arguments: ["", "@", "vsock:2:1", "relative"])
    func aSocketThatIsNoneIsNotAnswered(socket: String) {
        #expect(request(["NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "1000000"]) == nil)
    }

    @Test func aPathThatIsTooLongIsNotUsed() throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let long = ServiceWatchdog.Request(socket: "/" + String(repeating: "x", count: 200), interval: .seconds(1))
        #expect(ServiceWatchdog(watching: [loop], for: long) == nil)
    }

    @Test(arguments: [true, false])
    func systemdHearsOfTheLoopsForAsLongAsAllOfThemTurn(isAbstract: Bool) throws {
        let manager = try Manager(isAbstract: isAbstract)
        let loops = try (0..<3).map { try EventLoop(name: "test-\($0)", mayWait: true) }
        defer { for loop in loops { loop.stop() } }
        let watchdog = ServiceWatchdog(
            watching: loops, for: .init(socket: manager.name, interval: .milliseconds(100)))
        try #require(watchdog != nil)
        for _ in 0..<3 { #expect(manager.receive(within: .seconds(10)) == "WATCHDOG=1") }

        // One of them hangs.
        let gate = Gate()
        loops[2].execute { gate.wait() }
        while manager.receive(within: .milliseconds(300)) != nil {}
        #expect(manager.receive(within: .milliseconds(300)) == nil)

        gate.open()
        #expect(manager.receive(within: .seconds(10)) == "WATCHDOG=1")
        withExtendedLifetime(watchdog) {}
    }
}

/// What a thread waits at.
private final class Gate: @unchecked Sendable {
    private var semaphore = sem_t()
    init() { sem_init(&semaphore, 0, 0) }
    func wait() { sem_wait(&semaphore) }
    func open() { sem_post(&semaphore) }
}

/// The end of a service manager: a datagram socket.
private final class Manager {
    let name: String
    private let descriptor: Int32

    init(isAbstract: Bool) throws {
        let path = "/tmp/ptt-notify-\(getpid())-\(UInt32.random(in: 0...UInt32.max))"
        name = (isAbstract ? "@" : "") + path
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) {
            $0.copyBytes(from: (isAbstract ? [0] : []) + Array(path.utf8))
        }
        let length = socklen_t(2 + path.utf8.count + 1)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
        }
        try #require(result == 0)
    }

    deinit {
        close(descriptor)
        if name.hasPrefix("/") { unlink(name) }
    }

    func receive(within limit: Duration) -> String? {
        var poll = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        guard Glibc.poll(&poll, 1, Int32(limit.milliseconds)) == 1 else { return nil }
        var bytes = [UInt8](repeating: 0, count: 100)
        let count = recv(descriptor, &bytes, bytes.count, 0)
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
    }
}
