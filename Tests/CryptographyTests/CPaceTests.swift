// CPace: the draft's vectors, equal and different codes, and shares that are none.
import Testing

@testable import Cryptography

@Suite struct CPaceTests {
    private static let code = Array("Password".utf8)
    private static let session = bytes("7e4b4791d6a8ef019b936c79fb7f2c57")
    private static let context = bytes("0b415f696e69746961746f720b425f726573706f6e646572")
    private static let scalarA = bytes("da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08")
    private static let scalarB = bytes("d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d")

    /// draft-irtf-cfrg-cpace-21, appendix B.3.
    @Test func `the draft's vectors hold`() throws {
        let generator = CPace.generator(code: Self.code, context: Self.context, session: Self.session)
        #expect(generator == bytes("222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56"))
        let first = CPace(
            .initiator, code: Self.code, context: Self.context, session: Self.session, scalar: Self.scalarA)
        let second = CPace(
            .responder, code: Self.code, context: Self.context, session: Self.session, scalar: Self.scalarB)
        #expect(first.share == bytes("d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157"))
        #expect(second.share == bytes("3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258"))
        let key = bytes(
            "b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd"
                + "2b38950a39dfd5d4a79164614c2984f7daa460b588c1e80c3fa2068af7900447")
        let (dataA, dataB) = (Array("ADa".utf8), Array("ADb".utf8))
        #expect(first.key(from: second.share, data: dataA, otherData: dataB) == key)
        #expect(second.key(from: first.share, data: dataB, otherData: dataA) == key)
    }

    @Test func `equal codes give one key, and nothing else does`() throws {
        func end(_ role: CPace.Role, _ code: String = "271828", _ context: String = "channel") -> CPace {
            CPace(role, code: Array(code.utf8), context: Array(context.utf8))
        }
        let (first, second) = (end(.initiator), end(.responder))
        let key = try #require(first.key(from: second.share))
        #expect(key.count == CPace.keyByteCount)
        #expect(second.key(from: first.share) == key)
        for other in [end(.responder, "271829"), end(.responder, "271828", "other"), end(.responder, "")] {
            #expect(first.key(from: other.share) != other.key(from: first.share))
        }
        // A share says nothing twice: each exchange has its own.
        #expect(end(.initiator).share != end(.initiator).share)
    }

    @Test func `what is no element of the group ends the exchange`() {
        let end = CPace(.initiator, code: Self.code, context: [])
        #expect(end.key(from: []) == nil)
        #expect(end.key(from: [UInt8](repeating: 0, count: 31)) == nil)
        #expect(end.key(from: [UInt8](repeating: 0, count: 33)) == nil)
        // The neutral element, and an encoding that is not canonical (RFC 9496, appendix A.2).
        #expect(end.key(from: [UInt8](repeating: 0, count: 32)) == nil)
        #expect(end.key(from: [UInt8](repeating: 0xFF, count: 32)) == nil)
    }
}

private func bytes(_ hex: String) -> [UInt8] {
    var rest = Substring(hex)
    var result: [UInt8] = []
    while let byte = UInt8(rest.prefix(2), radix: 16) {
        result.append(byte)
        rest = rest.dropFirst(2)
    }
    return result
}
