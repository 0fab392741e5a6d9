// Who is told, and how, that nothing can be heard or said.
import Bridge
import Testing

@Suite struct SoundAlertsTests {
    @Test func `a loudspeaker that fails is told once in words, and by the light at each who is not heard`() {
        var news = SoundAlerts()
        #expect(news.update(.init()) == [])
        #expect(news.update(.init(talker: "Ada")) == [])
        let broken = SoundAlerts.State(speakerProblem: "it is gone", talker: "Ada")
        #expect(news.update(broken) == [.announce("Nothing can be heard: it is gone"), .flash])
        #expect(news.update(broken) == [])
        #expect(news.update(.init(speakerProblem: "it is gone")) == [])
        #expect(news.update(.init(speakerProblem: "it is still gone")) == [], "other words are no other fault")
        #expect(news.update(.init(speakerProblem: "it is gone", talker: "Bob")) == [.flash])
        #expect(news.update(.init(talker: "Bob")) == [])
        #expect(news.update(.init(talker: "Ada")) == [])
        #expect(news.update(.init(speakerProblem: "again")).count == 2)
    }

    @Test func `a microphone that fails is told where no press tells it`() {
        var news = SoundAlerts()
        #expect(
            news.update(.init(microphoneProblem: "unplugged")) == [.announce("Nothing can be said: unplugged")])
        #expect(news.update(.init(microphoneProblem: "unplugged", isTransmitting: true)) == [])
        #expect(news.update(.init()) == [])
        #expect(news.update(.init(microphoneProblem: "unplugged", isTransmitting: true)) == [])
    }
}
