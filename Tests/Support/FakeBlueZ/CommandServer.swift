// Commands over a Unix socket: one line in, one line out, for each client in turn.
import Glibc
import Reactor

/// Answers lines on a Unix socket.
public actor CommandServer {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private struct Client {
        let watch: EventLoop.Watch
        var pending: [UInt8] = []
        var isBusy = false
    }

    private static let lineMaximum = 4096
    private static let clientsMaximum = 16

    private let path: String
    private let handler: @Sendable (String) async -> String
    private var listener: (descriptor: Int32, watch: EventLoop.Watch)?
    private var clients: [Int32: Client] = [:]

    /// A server that does not listen yet.
    public init(path: String, loop: EventLoop, handler: @escaping @Sendable (String) async -> String) {
        self.path = path
        self.loop = loop
        self.handler = handler
    }

    /// Listens; a stale socket at the path is replaced.
    public func start() throws {
        var address = sockaddr_un()
        guard path.utf8.count < MemoryLayout.size(ofValue: address.sun_path), listener == nil else {
            throw SystemError("bind", code: ENAMETOOLONG)
        }
        let descriptor = socket(
            AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        unlink(path)
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard bound == 0, listen(descriptor, 8) == 0 else {
            let error = SystemError("bind")
            close(descriptor)
            throw error
        }
        let watch = try loop.watch(descriptor, for: .readable) { [weak self] _ in
            self?.assumeIsolated { $0.acceptClient() }
        }
        listener = (descriptor, watch)
    }

    /// Ends it and removes the socket.
    public func stop() {
        guard let listener else { return }
        listener.watch.cancel()
        close(listener.descriptor)
        self.listener = nil
        unlink(path)
        for descriptor in Array(clients.keys) { drop(descriptor) }
    }

    private func acceptClient() {
        guard let listener else { return }
        let descriptor = accept(listener.descriptor, nil, nil)
        guard descriptor >= 0 else { return }
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        guard clients.count < Self.clientsMaximum,
            let watch = try? loop.watch(
                descriptor, for: .readable,
                { [weak self] _ in
                    self?.assumeIsolated { $0.readable(descriptor) }
                })
        else {
            close(descriptor)
            return
        }
        clients[descriptor] = Client(watch: watch)
    }

    private func drop(_ descriptor: Int32) {
        guard let client = clients.removeValue(forKey: descriptor) else { return }
        client.watch.cancel()
        close(descriptor)
    }

    private func readable(_ descriptor: Int32) {
        var buffer = [UInt8](repeating: 0, count: Self.lineMaximum)
        let count = read(descriptor, &buffer, buffer.count)
        if count < 0, errno == EAGAIN || errno == EINTR { return }
        guard count > 0 else { return drop(descriptor) }
        clients[descriptor]?.pending += buffer[..<count]
        guard (clients[descriptor]?.pending.count ?? 0) <= Self.lineMaximum else { return drop(descriptor) }
        serve(descriptor)
    }

    private func serve(_ descriptor: Int32) {
        guard let client = clients[descriptor], !client.isBusy,
            let end = client.pending.firstIndex(of: UInt8(ascii: "\n"))
        else { return }
        let line = String(decoding: client.pending[..<end], as: UTF8.self)
        clients[descriptor]?.pending.removeSubrange(...end)
        clients[descriptor]?.isBusy = true
        let identity = client.watch
        Task {
            let answer = Array((await handler(line.trimmed) + "\n").utf8)
            // The number may be another client's by now.
            guard clients[descriptor]?.watch === identity else { return }
            clients[descriptor]?.isBusy = false
            let sent = answer.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if sent == answer.count { serve(descriptor) } else { drop(descriptor) }
        }
    }
}

extension String {
    fileprivate var trimmed: String { split(whereSeparator: \.isWhitespace).joined(separator: " ") }
}
