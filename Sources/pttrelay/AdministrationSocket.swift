// The Unix socket in a relay's state directory: server and client.
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import Reactor
import RelayHTTP

/// The file name of the socket in the state directory.
private let socketName = "/control"

/// Where the socket of a state directory is, as bind(2) and connect(2) want it. A path that is too long for them goes by the
/// directory's descriptor.
private func withSocketAddress<T>(
    _ directory: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> T
) throws -> T {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let room = MemoryLayout.size(ofValue: address.sun_path) - 1
    var path = Array((directory + socketName).utf8)
    var descriptor: Int32 = -1
    defer { if descriptor >= 0 { close(descriptor) } }
    if path.count > room {
        descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw SystemError("open") }
        path = Array("/proc/self/fd/\(descriptor)\(socketName)".utf8)
    }
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
    return withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
    }
}

/// Whether the other end of a Unix socket is root or the user of this process (SO_PEERCRED, unix(7)).
private func isTrusted(_ descriptor: Int32) -> Bool {
    // struct ucred: the process, the user, the group.
    var credentials: [UInt32] = [0, .max, .max]
    var size = socklen_t(3 * MemoryLayout<UInt32>.size)
    guard getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 else { return false }
    return credentials[1] == 0 || credentials[1] == geteuid()
}

// MARK: - The relay's side

/// Listens for commands. It lives on the registrar's loop.
final class AdministrationServer: @unchecked Sendable {
    /// One command: a request, then its answer. All use is on the loop.
    private final class Conversation {
        let number: UInt64
        let descriptor: Int32
        var watch: EventLoop.Watch?
        var timer: EventLoop.Timer?
        var incoming: [UInt8] = []
        var outgoing: ArraySlice<UInt8> = []
        var isAnswering = false
        init(_ number: UInt64, _ descriptor: Int32) { (self.number, self.descriptor) = (number, descriptor) }
    }

    private let registrar: Registrar
    private let directory: String
    private let logger: Logger
    private let descriptor: Int32
    private var watch: EventLoop.Watch?
    private var pause = AcceptPause()
    private var pauseTimer: EventLoop.Timer?
    private var conversations: [UInt64: Conversation] = [:]
    private var nextNumber: UInt64 = 1

    /// Listens in `directory`, which the caller has locked: a socket that is there is of a relay that was killed.
    ///
    /// - Throws: `RelayStateError`.
    init(directory: String, registrar: Registrar, logger: Logger) async throws {
        self.directory = directory
        self.registrar = registrar
        self.logger = logger
        unlink(directory + socketName)
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | O_CLOEXEC | O_NONBLOCK, 0)
        let descriptor = descriptor
        let isListening =
            try withSocketAddress(directory) { address, size in bind(descriptor, address, size) == 0 }
            && chmod(directory + socketName, 0o600) == 0
            && listen(descriptor, Int32(AdministrationLimits.connections)) == 0
        guard isListening else {
            let why = String(cString: strerror(errno))
            close(descriptor)
            throw RelayStateError(
                description: "cannot listen for commands at \(directory)\(socketName): \(why)", mayPass: true)
        }
        try await registrar.loop.run { [self] in
            watch = try registrar.loop.watch(descriptor, for: .readable) { [weak self] _ in self?.accept() }
        }
    }

    /// Ends it; commands under way get no answer.
    func stop() async {
        try? await registrar.loop.run { [self] in
            pauseTimer?.cancel()
            watch?.cancel()
            for conversation in Array(conversations.values) { end(conversation) }
            close(descriptor)
            unlink(directory + socketName)
        }
    }

    private func accept() {
        let peer = Glibc.accept(descriptor, nil, nil)
        guard peer >= 0 else { return failed(errno) }
        pause.accepted()
        _ = fcntl(peer, F_SETFD, FD_CLOEXEC)
        _ = fcntl(peer, F_SETFL, O_NONBLOCK)
        guard isTrusted(peer), conversations.count < AdministrationLimits.connections else {
            logger.warning("command refused: it came from another user, or too many came at once")
            close(peer)
            return
        }
        let conversation = Conversation(nextNumber, peer)
        nextNumber += 1
        do throws(SystemError) {
            conversation.watch = try registrar.loop.watch(peer, for: .readable) { [weak self, weak conversation] _ in
                if let self, let conversation { self.advance(conversation) }
            }
        } catch {
            close(peer)
            return
        }
        conversations[conversation.number] = conversation
        conversation.timer = registrar.loop.schedule(after: AdministrationLimits.time) {
            [weak self, weak conversation] in
            if let self, let conversation { self.end(conversation) }
        }
    }

    private func failed(_ code: Int32) {
        guard case .pause(let tells) = pause.failed(code) else { return }
        if tells { logger.warning("\(AcceptPause.advice)", metadata: ["socket": "\(directory)\(socketName)"]) }
        watch?.update([])
        pauseTimer = registrar.loop.schedule(after: AcceptPause.time) { [weak self] in self?.watch?.update(.readable) }
    }

    private func end(_ conversation: Conversation) {
        guard conversations.removeValue(forKey: conversation.number) != nil else { return }
        conversation.timer?.cancel()
        conversation.watch?.cancel()
        close(conversation.descriptor)
    }

    private func advance(_ conversation: Conversation) {
        if conversation.isAnswering { write(conversation) } else { read(conversation) }
    }

    private func read(_ conversation: Conversation) {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = recv(conversation.descriptor, &buffer, buffer.count, 0)
        if count < 0, errno == EAGAIN || errno == EINTR { return }
        guard count > 0 else { return end(conversation) }
        conversation.incoming += buffer.prefix(count)
        guard let newline = conversation.incoming.firstIndex(of: UInt8(ascii: "\n")) else {
            if conversation.incoming.count > AdministrationLimits.requestBytes { end(conversation) }
            return
        }
        let line = conversation.incoming[..<newline]
        conversation.isAnswering = true
        // Nothing more is read; a hang-up ends it.
        conversation.watch?.update([])
        let request = try? JSONDecoder().decode(AdministrationRequest.self, from: Data(line))
        let number = conversation.number
        Task { [registrar, weak self] in
            let response =
                if let request { await registrar.answer(request) } else {
                    AdministrationResponse.failed(
                        "the relay does not know this command; it runs another version: restart it with this one")
                }
            registrar.loop.execute { [weak self] in self?.answer(number, response) }
        }
    }

    private func answer(_ number: UInt64, _ response: AdministrationResponse) {
        guard let conversation = conversations[number], conversation.isAnswering else { return }
        conversation.outgoing = Self.encoded(response)[...]
        conversation.watch?.update(.writable)
    }

    /// The answer as the command reads it. One that is too long is replaced by an error that says so.
    static func encoded(_ response: AdministrationResponse) -> [UInt8] {
        let bytes = (try? JSONEncoder().encode(response)).map { [UInt8]($0) } ?? []
        if !bytes.isEmpty, bytes.count <= AdministrationLimits.responseBytes { return bytes }
        let problem = AdministrationResponse.failed(
            "the answer takes \(bytes.count) bytes and may take \(AdministrationLimits.responseBytes); ask for one channel at a time"
        )
        return (try? JSONEncoder().encode(problem)).map { [UInt8]($0) } ?? []
    }

    private func write(_ conversation: Conversation) {
        let count = conversation.outgoing.withUnsafeBytes {
            send(conversation.descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
        }
        if count < 0, errno == EAGAIN || errno == EINTR { return }
        guard count > 0 else { return end(conversation) }
        conversation.outgoing = conversation.outgoing.dropFirst(count)
        if conversation.outgoing.isEmpty { end(conversation) }
    }
}

// MARK: - The commands' side

/// Asks the relay that runs with a state directory.
enum AdministrationClient {
    /// The answer; nil when no relay listens there.
    ///
    /// - Throws: `RelayStateError`.
    static func ask(_ request: AdministrationRequest, in directory: String) throws -> AdministrationResponse? {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | O_CLOEXEC, 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        defer { close(descriptor) }
        var timeout = timeval(tv_sec: time_t(AdministrationLimits.time.components.seconds), tv_usec: 0)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &timeout, socklen_t(MemoryLayout<timeval>.size))
        }
        guard try withSocketAddress(directory, { connect(descriptor, $0, $1) == 0 }) else {
            if errno == EACCES || errno == EPERM {
                throw RelayStateError(
                    description:
                        "the relay in \(directory) accepts commands only from its own user and from root; use sudo")
            }
            return nil
        }
        var rest = try JSONEncoder().encode(request).map { $0 } + [UInt8(ascii: "\n")]
        while !rest.isEmpty {
            let count = send(descriptor, rest, rest.count, Int32(MSG_NOSIGNAL))
            guard count > 0 else { throw unanswered }
            rest.removeFirst(count)
        }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count < 0, errno == EINTR { continue }
            guard count >= 0, bytes.count + count <= AdministrationLimits.responseBytes else { throw unanswered }
            if count == 0 { break }
            bytes += buffer.prefix(count)
        }
        guard let response = try? JSONDecoder().decode(AdministrationResponse.self, from: Data(bytes)) else {
            throw unanswered
        }
        return response
    }

    private static let unanswered = RelayStateError(
        description: "the relay did not answer; look at its log, and try again")
}
