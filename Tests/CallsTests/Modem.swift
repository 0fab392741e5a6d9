// Real telephony services with a modem of the test's own: what is scripted is the modem, below them.
import BusTestSupport
import DBus
import Glibc
import Reactor

@testable import Calls

/// A modem that speaks AT commands, at which a real ofonod or ModemManager telephones (modem.py).
struct Modem {
    let process: ChildProcess
    /// The TCP port, or the abstract socket's name.
    let address: String

    init(socket: String? = nil) async throws {
        let script = "\(#filePath)".split(separator: "/").dropLast().map { "/" + $0 }.joined() + "/modem.py"
        let process = try ChildProcess(["python3", script] + (socket.map { [$0] } ?? []), package: "python3")
        let isThere = try await eventually { process.output.contains { $0 == "\n" } }
        guard isThere else {
            throw ChildProcess.Failure(description: "the modem does not start: \(process.errors)")
        }
        self.process = process
        address = String(process.output.prefix { $0 != "\n" })
    }

    /// An order of modem.py.
    func order(_ text: String) { process.say(text) }
}

/// A monitor on the fixture's bus, what it reported, and a connection to speak to the services with.
struct Listener {
    let connection: DBusConnection
    let monitor: CallMonitor
    let reports = Recorder<[ActiveCall]>()

    init(_ fixture: BusFixture, services: [CallService] = CallService.allCases) async throws {
        connection = try await fixture.connect()
        monitor = CallMonitor(on: connection, services: services, logger: fixture.logger) { [reports] in
            reports.record($0)
        }
        try await monitor.start()
    }

    /// Waits until the calls are these, in a user's words and states; returns what they were last.
    @discardableResult
    func reaches(_ expected: [String], _ timeout: Duration = .seconds(15)) async throws -> [String] {
        try await reports.wait(timeout) { ($0.last ?? []).map(\.text) == expected }.last.map { $0.map(\.text) } ?? []
    }
}

extension ActiveCall {
    var text: String { "\(description) \(state)" }
}

func write(_ text: String, to path: String) throws {
    guard let file = fopen(path, "w") else { throw ChildProcess.Failure(description: "\(path): \(errno)") }
    fputs(text, file)
    fclose(file)
}

func unlinkFile(_ path: String) { unlink(path) }
