// The server's certificate is renewed while the endpoint runs.
import Cryptography
import Foundation
import RelayHTTP
import RelayProtocol
import Testing
import Vocabulary

extension EndpointTests {
    @Test func `a renewed certificate holds from the next connection on, and one that does not fit changes nothing`()
        async throws
    {
        let rig = try await EndpointRig()
        let path = "/3/device/\(try await rig.registeredToken().hexadecimal)"
        let (new, other) = (
            try Identity(generating: "localhost", serverNames: [.host("localhost")]), try Identity(generating: "other")
        )
        try new.certificatePEM.write(toFile: rig.directory + "/new.pem", atomically: true, encoding: .utf8)
        #expect(throws: PushEndpointError.self) {
            _ = try rig.service.certificate(new.certificatePEM, privateKeyPEM: other.privateKeyPEM)
        }
        #expect(try await rig.curl(EndpointRig.arguments(), path: path).status == 200)
        rig.service.setCertificate(
            try rig.service.certificate(new.certificatePEM, privateKeyPEM: new.privateKeyPEM))
        #expect(try await rig.curl(EndpointRig.arguments(), path: path).status == 0, "the old one is gone")
        #expect(try await rig.curl(EndpointRig.arguments("--cacert new.pem"), path: path).status == 200)
        try await rig.stop()
    }
}
