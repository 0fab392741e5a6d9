// Resolves host names to addresses, off the loop.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

extension SocketAddress {
    /// The addresses of `host`, in the resolver's order of preference (getaddrinfo(3)). The resolver blocks, so it
    /// runs on a thread of its own; a numeric host needs none.
    ///
    /// - Throws: `QUICError.unresolvedHost`.
    public static func resolve(_ host: String, port: UInt16) async throws(QUICError) -> [SocketAddress] {
        if let numeric = SocketAddress(host, port: port) { return [numeric] }
        let result = await withCheckedContinuation { (continuation: CheckedContinuation<Resolution, Never>) in
            let box = Unmanaged.passRetained(ResolverRequest(host: host, port: port, continuation: continuation))
            var thread = pthread_t()
            let status = pthread_create(
                &thread, nil,
                { argument in
                    guard let argument else { return nil }
                    let request = Unmanaged<ResolverRequest>.fromOpaque(argument).takeRetainedValue()
                    request.continuation.resume(returning: lookUp(request.host, port: request.port))
                    return nil
                }, box.toOpaque())
            guard status == 0 else {
                box.release()
                let error = SystemError("pthread_create", code: status)
                continuation.resume(returning: .failure(.socket(error, during: "resolving '\(host)'")))
                return
            }
            pthread_detach(thread)
        }
        return try result.get()
    }
}

private typealias Resolution = Result<[SocketAddress], QUICError>

private final class ResolverRequest {
    let host: String
    let port: UInt16
    let continuation: CheckedContinuation<Resolution, Never>

    init(host: String, port: UInt16, continuation: CheckedContinuation<Resolution, Never>) {
        self.host = host
        self.port = port
        self.continuation = continuation
    }
}

private func lookUp(_ host: String, port: UInt16) -> Resolution {
    var hints = addrinfo()
    hints.ai_family = AF_UNSPEC
    hints.ai_socktype = Int32(SOCK_DGRAM.rawValue)
    var list: UnsafeMutablePointer<addrinfo>?
    let status = getaddrinfo(host, nil, &hints, &list)
    guard status == 0 else { return .failure(.unresolvedHost(host, reason: String(cString: gai_strerror(status)))) }
    defer { freeaddrinfo(list) }
    var addresses: [SocketAddress] = []
    var next = list
    while let entry = next {
        if let address = entry.pointee.ai_addr,
            var found = SocketAddress(UnsafeRawPointer(address), length: Int(entry.pointee.ai_addrlen))
        {
            found.port = port
            addresses.append(found)
        }
        next = entry.pointee.ai_next
    }
    return addresses.isEmpty ? .failure(.unresolvedHost(host, reason: "no IP address")) : .success(addresses)
}
