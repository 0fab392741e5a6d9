// The client's rules of pushes: registered again on every connection, each push told once.
import MonotonicTime
import RelayProtocol
import Testing
import Vocabulary

@testable import RelayClient

@Suite struct PushRegistrationsTests {
    private var registrations = PushRegistrations()
    private let now = Instant(nanoseconds: 5_000_000_000)
    private let topic = PushTopic("org.example.radio.voip-ptt")!

    private func token(_ number: UInt8) -> PushToken { PushToken([UInt8](repeating: number, count: 32))! }

    private mutating func handle(_ event: PushRegistrations.Event) -> [PushRegistrations.Action] {
        registrations.handle(event, at: now)
    }

    private func registers(_ actions: [PushRegistrations.Action]) -> [PushToken] {
        actions.compactMap { if case .send(.pushRegister(let register)) = $0 { register.token } else { nil } }
    }

    private func push(_ number: UInt64, _ token: PushToken, lifetime: Duration = .zero) -> ServerMessage.Push {
        .init(
            id: PushID(rawValue: number), token: token, payload: Array("{}".utf8), priority: 10, lifetime: lifetime)
    }

    @Test mutating func `tokens are registered now, or with the link, and again with each one`() {
        #expect(handle(.register(token(1), topic)).isEmpty)
        #expect(registers(handle(.linkReady)) == [token(1)])
        #expect(registers(handle(.register(token(2), topic))) == [token(2)])
        #expect(handle(.registered(token(1))) == [.tell(.registered(token(1)))])
        #expect(handle(.registered(token(7))).isEmpty)
        #expect(handle(.linkLost).isEmpty)
        #expect(registers(handle(.linkReady)) == [token(1), token(2)])
    }

    @Test mutating func `a dead token is told to the relay, at the next connection at the latest`() {
        _ = handle(.register(token(1), topic))
        _ = handle(.register(token(2), topic))
        _ = handle(.linkReady)
        #expect(handle(.unregister(token(1))) == [.send(.pushUnregister(token(1)))])
        _ = handle(.linkLost)
        #expect(handle(.unregister(token(2))).isEmpty)
        #expect(handle(.linkReady) == [.send(.pushUnregister(token(2)))])
        _ = handle(.linkLost)
        #expect(handle(.linkReady).isEmpty)
    }

    @Test mutating func `more tokens than the relay takes are refused here, and dead ones do not pile up`() {
        for number in 1...8 { #expect(handle(.register(token(UInt8(number)), topic)).isEmpty) }
        guard case .tell(.refused(token(9), .tooMany, _))? = handle(.register(token(9), topic)).first else {
            Issue.record("not refused")
            return
        }
        #expect(handle(.register(token(8), topic)).isEmpty, "again")
        for number in 1...20 { _ = handle(.unregister(token(UInt8(number)))) }
        #expect(
            handle(.linkReady) == (13...20).map { .send(.pushUnregister(token($0))) })
    }

    @Test mutating func `a push is told once and always confirmed`() {
        _ = handle(.register(token(1), topic))
        _ = handle(.linkReady)
        let receipt = PushRegistrations.Action.send(.pushReceipt(.init(id: PushID(rawValue: 7), outcome: .taken)))
        let told = RelayPush(
            token: token(1), payload: Array("{}".utf8), priority: 10, expiresAt: now + .seconds(3), receivedAt: now)
        #expect(handle(.push(push(7, token(1), lifetime: .seconds(3)))) == [receipt, .tell(.push(told))])
        _ = handle(.linkLost)
        _ = handle(.linkReady)
        #expect(handle(.push(push(7, token(1), lifetime: .seconds(2)))) == [receipt])
        for number in 100...163 { #expect(handle(.push(push(UInt64(number), token(1)))).count == 2) }
        #expect(handle(.push(push(7, token(1)))).count == 2, "it is not remembered for ever")
    }

    @Test mutating func `a push for a token that is not registered is refused`() {
        _ = handle(.linkReady)
        let refusal = PushRegistrations.Action.send(
            .pushReceipt(.init(id: PushID(rawValue: 1), outcome: .unknownToken)))
        #expect(handle(.push(push(1, token(1)))) == [refusal])
        _ = handle(.register(token(1), topic))
        _ = handle(.unregister(token(1)))
        #expect(handle(.push(push(1, token(1)))) == [refusal])
    }

    @Test(arguments: PushRefusal.allCases)
    func `a refusal is told, and what cannot change is not asked again`(cause: PushRefusal) {
        var registrations = PushRegistrations()
        _ = registrations.handle(.register(token(1), topic), at: now)
        _ = registrations.handle(.linkReady, at: now)
        let refusal = ServerMessage.PushRefused(token: token(1), cause: cause, phrase: "so")
        #expect(registrations.handle(.refused(refusal), at: now) == [.tell(.refused(token(1), cause, "so"))])
        _ = registrations.handle(.linkLost, at: now)
        let isFinal = [.malformed, .taken, .dead].contains(cause)
        #expect(registrations.handle(.linkReady, at: now).isEmpty == isFinal)
    }
}
