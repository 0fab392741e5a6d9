// Whether a program belongs to the user at the machine, as logind reports it.
import DBus
import Logging
import MonotonicTime
import Reactor

/// Tells of a process whether its login session is the active one of its seat.
///
/// A program in the foreground is one whose session is active (no other user's session has the seat, and no other text
/// console). A program outside any session belongs to its user: it is in the foreground while one of the user's sessions is
/// active, which is how programs started by the user's systemd are seen. A service of the system (its user has not logged in),
/// a remote login, and every program on a machine without logind are always in the foreground: there is nobody they could be in
/// the background of. So is every program when logind does not answer within `timeLimit`.
public actor ForegroundMonitor {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// The longest that `isForeground` takes.
    public static let timeLimit = Duration.milliseconds(200)
    /// Maximum number of remembered sessions. For further ones logind is asked again.
    static let sessionsMaximum = 256

    private static let service = "org.freedesktop.login1"
    private static let root: DBusObjectPath = "/org/freedesktop/login1"
    private static let manager = "org.freedesktop.login1.Manager"
    private static let session = "org.freedesktop.login1.Session"
    private static let user = "org.freedesktop.login1.User"

    private let bus: DBusConnection
    private let logger: Logger
    private var owner: String?
    /// Whether a session is active, for those that were asked about, kept true by logind's signals.
    private var isActive: [DBusObjectPath: Bool] = [:]
    /// Counts signals about sessions, so that an answer that crossed one is not remembered.
    private var changes = 0
    private var matches: [DBusMatch] = []
    private var watch: DBusNameWatch?

    /// A monitor that says "foreground" of everything before `start()`.
    ///
    /// - Parameter bus: A connection to the system bus; connected or not yet.
    public init(on bus: DBusConnection, logger: Logger) {
        self.bus = bus
        loop = bus.loop
        self.logger = logger
    }

    /// Begins to listen to logind, which need not be present.
    /// - Throws: When the bus refuses the signal matches.
    public func start() async throws(DBusError) {
        guard watch == nil, matches.isEmpty else { return }
        do throws(DBusError) {
            for rule in [
                DBusMatchRule(
                    sender: Self.service, interface: StandardInterface.properties, member: "PropertiesChanged",
                    argument0: Self.session),
                DBusMatchRule(sender: Self.service, path: Self.root, interface: Self.manager, member: "SessionRemoved"),
            ] {
                matches.append(
                    try await bus.addMatch(rule) { [weak self] message in self?.assumeIsolated { $0.received(message) }
                    })
            }
            watch = try await bus.watchName(Self.service) { [weak self] owner in
                self?.assumeIsolated { $0.ownerChanged(owner) }
            }
        } catch {
            await stop()
            throw error
        }
    }

    /// Ends it.
    public func stop() async {
        if let watch { await bus.unwatchName(watch) }
        watch = nil
        for match in matches { await bus.removeMatch(match) }
        matches = []
        ownerChanged(nil)
    }

    /// Whether the process is in the foreground. Takes at most `timeLimit`; never fails.
    ///
    /// - Parameters:
    ///   - processIdentifier: The caller's process, as the bus reports it.
    ///   - userIdentifier: The user it runs as, likewise.
    public func isForeground(processIdentifier: UInt32, userIdentifier: UInt32) async -> Bool {
        guard owner != nil else { return true }
        let deadline = Instant.now + Self.timeLimit
        do throws(DBusError) {
            if let session = try await session(of: processIdentifier, by: deadline) {
                return try await isActive(session, by: deadline)
            }
            return try await isUserActive(userIdentifier, by: deadline)
        } catch {
            logger.notice(
                "logind does not report whether a program is in the foreground; assuming that it is",
                metadata: ["process": "\(processIdentifier)", "reason": "\(error)"])
            return true
        }
    }

    private func session(of process: UInt32, by deadline: Instant) async throws(DBusError) -> DBusObjectPath? {
        do {
            return try await ask(Self.root, Self.manager, "GetSessionByPID", [.uint32(process)], by: deadline)
        } catch {
            // No session; or no process any more, whose user is known all the same.
            switch error.remoteName {
            case "org.freedesktop.login1.NoSessionForPID", "org.freedesktop.login1.NoSuchSession",
                "org.freedesktop.DBus.Error.UnixProcessIdUnknown", "System.Error.ESRCH":
                return nil
            default: throw error
            }
        }
    }

    private func isActive(_ session: DBusObjectPath, by deadline: Instant) async throws(DBusError) -> Bool {
        if let known = isActive[session] { return known }
        let before = changes
        let value: Bool = try await property("Active", Self.session, session, by: deadline)
        if before == changes, owner != nil, isActive.count < Self.sessionsMaximum { isActive[session] = value }
        return value
    }

    /// `State` is "online" for a user who has logged in and whose sessions are all in the background.
    private func isUserActive(_ user: UInt32, by deadline: Instant) async throws(DBusError) -> Bool {
        do {
            let path: DBusObjectPath = try await ask(Self.root, Self.manager, "GetUser", [.uint32(user)], by: deadline)
            let state: String = try await property("State", Self.user, path, by: deadline)
            return state != "online"
        } catch {
            if error.remoteName == "org.freedesktop.login1.NoSuchUser" { return true }
            throw error
        }
    }

    private func property<T: DBusConvertible>(
        _ name: String, _ interface: String, _ path: DBusObjectPath, by deadline: Instant
    ) async throws(DBusError) -> T {
        try await ask(
            path, StandardInterface.properties, "Get", [.string(interface), .string(name)], by: deadline)
    }

    private func ask<T: DBusConvertible>(
        _ path: DBusObjectPath, _ interface: String, _ method: String, _ arguments: [DBusValue], by deadline: Instant
    ) async throws(DBusError) -> T {
        let left = deadline - .now
        guard left > .zero else { throw .timedOut(method) }
        let answer = try await bus.call(
            destination: Self.service, path: path, interface: interface, method: method, arguments: arguments,
            timeout: left, startsService: false)
        return try answer.argument(0)
    }

    private func ownerChanged(_ new: String?) {
        guard new != owner else { return }
        owner = new
        changes += 1
        isActive = [:]
    }

    private func received(_ message: DBusMessage) {
        changes += 1
        if message.member == "SessionRemoved" {
            if message.arguments.count > 1, let path = message.arguments[1].objectPathValue { isActive[path] = nil }
            return
        }
        guard let path = message.path, isActive[path] != nil, message.arguments.count > 2 else { return }
        if let active = message.arguments[1].propertiesValue?["Active"]?.boolValue {
            isActive[path] = active
        } else if message.arguments[2].arrayValue?.contains(.string("Active")) == true {
            isActive[path] = nil
        }
    }
}
