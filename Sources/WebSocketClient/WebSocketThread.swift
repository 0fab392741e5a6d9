// The thread on which NIO serves all WebSockets of the process, and those that wait so that no event loop has to.
import Glibc
import NIOCore
import NIOPosix
import Synchronization

enum WebSocketThread {
    /// Made when it is used first: where everything goes over QUIC, there is no such thread.
    private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private static let isMade = Mutex(false)

    /// Calls `body` with it; at once, or, when it has to be made, on a thread that may wait for it.
    static func use(_ body: @escaping @Sendable (MultiThreadedEventLoopGroup) -> Void) {
        if isMade.withLock({ $0 }) { return body(group) }
        perform {
            body(group)
            isMade.withLock { $0 = true }
        }
    }

    /// Runs `work` on a thread of its own; here, when the system has none left.
    static func perform(_ work: @escaping @Sendable () -> Void) {
        var thread = pthread_t()
        let box = Unmanaged.passRetained(Work(work))
        let status = pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().run()
                return nil
            }, box.toOpaque())
        if status == 0 {
            pthread_detach(thread)
        } else {
            box.takeRetainedValue().run()
        }
    }

    private final class Work: Sendable {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }
}

/// Resolves names by getaddrinfo(3) on a thread of its own. NIO's resolver starts libdispatch, whose workers wake up every second
/// from then on.
final class ThreadResolver: Resolver, @unchecked Sendable {
    private let four: EventLoopPromise<[SocketAddress]>
    private let six: EventLoopPromise<[SocketAddress]>
    /// On the loop's thread.
    private var isAsked = false

    init(on loop: any NIOCore.EventLoop) {
        four = loop.makePromise()
        six = loop.makePromise()
    }

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        ask(host, port)
        return four.futureResult
    }

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        ask(host, port)
        return six.futureResult
    }

    func cancelQueries() {}

    private func ask(_ host: String, _ port: Int) {
        guard !isAsked else { return }
        isAsked = true
        let (four, six) = (four, six)
        WebSocketThread.perform {
            var hints = addrinfo()
            hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
            var list: UnsafeMutablePointer<addrinfo>?
            let status = getaddrinfo(host, "\(port)", &hints, &list)
            defer { if let list { freeaddrinfo(list) } }
            guard status == 0 else {
                let why = ResolverFailure(why: String(cString: gai_strerror(status)))
                four.fail(why)
                six.fail(why)
                return
            }
            var found: (four: [SocketAddress], six: [SocketAddress]) = ([], [])
            var next = list
            while let entry = next {
                next = entry.pointee.ai_next
                guard let address = entry.pointee.ai_addr else { continue }
                switch entry.pointee.ai_family {
                case AF_INET:
                    let place = address.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { $0.pointee }
                    found.four.append(SocketAddress(place))
                case AF_INET6:
                    let place = address.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) { $0.pointee }
                    found.six.append(SocketAddress(place))
                default: break
                }
            }
            four.succeed(found.four)
            six.succeed(found.six)
        }
    }
}

/// What the resolver says.
struct ResolverFailure: Error, CustomStringConvertible {
    let why: String
    var description: String { why }
}
