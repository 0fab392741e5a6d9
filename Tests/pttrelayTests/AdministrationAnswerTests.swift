// What a command is answered when its answer is too long.
import FoundationEssentials
import Testing

@testable import pttrelay

@Suite struct AdministrationAnswerTests {
    private func members(_ count: Int) -> AdministrationResponse {
        let line = AdministrationResponse.MemberLine(
            id: String(repeating: "0", count: 32), name: "Ann", invitation: 1, priority: 0, isListenOnly: false,
            enrolledAt: 0)
        return .members(Array(repeating: line, count: count), next: nil)
    }

    private func read(_ bytes: [UInt8]) throws -> AdministrationResponse {
        try JSONDecoder().decode(AdministrationResponse.self, from: Data(bytes))
    }

    @Test func `an answer within the limit is told as it is`() throws {
        #expect(try read(AdministrationServer.encoded(members(500))) == members(500))
    }

    @Test func `an answer beyond the limit is an error that says so`() throws {
        let bytes = AdministrationServer.encoded(members(20_000))
        #expect(bytes.count <= AdministrationLimits.responseBytes)
        guard case .failed(let why) = try read(bytes) else {
            Issue.record("the command got no error")
            return
        }
        #expect(why.contains("\(AdministrationLimits.responseBytes)"))
    }
}
