"""Words that name nothing: they stand in any ask and tell no place of a text from another."""

from __future__ import annotations

from collections.abc import Sequence

_BY_LANGUAGE = {
    "en": """a about above according after again all also am an and any are as at be because been
    before being below between both but by can could did do does doing down during each either
    find for from further give get had has have having he her here hers him his how i if in into
    is it its just list many me more most much must my name named no nor not now of off on once
    only or other our out over own per please provide said same say says shall she should show so
    some such tell than that the their them then there these they this those through to too under
    until up upon very was we were what when where whether which while who whom whose why will
    with within without would you your answer question text document passage context following
    exact exactly state stated called known quote return respond reply value""",
    "de": """aber alle allem allen aller alles als also am an ander andere anderen auch auf
    aus bei beim bin bis bist bitte da dann das dass dein dem den der des dich die dies diese
    dieser dieses doch dort du durch ein eine einem einen einer eines er es etwas euch fand für
    gegen gab gib gibt haben hat hatte hatten ich ihm ihn ihnen ihr ihre ihren im in ist ja jede
    jeden jeder kann kein keine laut man mein mit muss nach nenne nicht noch nur ob oder ohne
    sein seine sich sie sind so steht soll über um und uns unter vom von vor war waren was weil
    welche welchem welchen welcher welches wenn wer werden wessen wie wieviel viel viele wird wo
    woher wohin wurde wurden zu zum zur zwischen text dokument frage antwort finde heißt lautet
    wann""",
    "fr": """à au aux avec ce ces cet cette ceux chaque combien comme comment d dans de des donc du
    elle elles en est et était étaient été être eux il ils je l la le les leur leurs lui ma mais me
    même mes moi mon n ne nos notre nous on ont ou où par pas pour quand que quel quelle quelles
    quels qui quoi s sa sans se ses selon si son sont sur ta te tes toi ton tous tout toute toutes
    tu un une vos votre vous y a ai as avait texte document question réponse donne trouve cite
    indique""",
    "es": """a al algo ante como con cual cuál cuales cuáles cuando cuándo cuanto cuánto cuantos
    cuántos cuántas de del desde donde dónde dos e el ella ellas ellos en entre era eran es esa ese
    eso esta está este esto estos fue fueron ha hay la las le les lo los más me mi mis muy no nos o
    para pero por porque que qué quien quién se según ser si sí sin sobre son su sus también te
    tiene todo todos todas tu tus un una uno unos y ya texto documento pregunta respuesta dime
    encuentra indica""",
    "pt": """a ao aos as com como da das de dela dele deles do dos e é ela elas ele eles em
    entre era essa esse esta está este eu foi foram há isso isto já la lhe mais mas me meu minha
    muito na nas não no nos nós o onde os ou para pela pelas pelo pelos por qual quais quando
    quanto quantos quantas que quê quem se segundo sem ser seu seus só sua suas também te tem
    todos todas tu um uma uns texto documento pergunta resposta diga encontre""",
    "it": """a ad agli ai al alla alle allo anche che chi ci come con cosa cui da dai dal
    dalla dalle dallo degli dei del della delle dello di dove e è ed era erano fu gli ha hanno i
    il in io la le lei li lo loro lui ma me mi mia mio ne nei nel nella nelle nello noi non o
    ogni per perché più qual quale quali quando quanti quante quanto quella quelle quello questa
    questi questo se sei secondo senza si sia sono su sua sue sugli sui sul sulla sulle suo suoi
    tra tu tutti tutte un una uno vi voi testo documento domanda risposta trova indica""",
    "ru": """а без был была были было быть в вам вас весь во вот все всех вы где да для до
    его ее её ей если есть еще же за и из или им их к как какая какие какой каков кем ко когда
    который которая которые которого кого кто ли между мне мной мы на над назови найди нам нас
    не него нее ней нет ни них но о об он она они оно от перед по под при про с свой себя
    согласно сколько со та так там те тем то того только том ты у уже укажи чего чей чем что
    чтобы чье эта эти это этого этой этом этот я тексте документе вопрос ответ""",
    "zh": """的是 是什 什么 么是 请问 是多 多少 哪个 哪些 是谁 什麼 麼是 根据 文中 中的
    为什 列出 所有 有多 少个 回答 请列 请给 给出 告诉 诉我 请找 找出 是哪 在哪 哪里 哪年 一个
    这个 那个 何时""",
    "ja": """です ます した った され れた ました ませ てい いる いま ある ので から まで
    こと とは は何 何で すか でし たか ますか くだ ださ さい てく という いう とい うか です
    どこ いつ だれ 誰が 何を を教 教え えて の名 によ よる ると よれ れば""",
    "ko": """무엇 엇인 인가 가요 입니 니까 습니 니다 얼마 언제 누구 어디 어느 에서 으로
    에게 은무 는무 하는 하십 십시 시오 하세 세요 주세 알려 려주 인지""",
}

_SETS = {language: frozenset(words.split()) for language, words in _BY_LANGUAGE.items()}
STOP_WORDS = frozenset(word for words in _SETS.values() for word in words)
_ALIKE = 0.7


def stop_words_for(words: Sequence[str]) -> frozenset[str]:
    """The stop words of the language of `words`, and of those that look about as likely.

    `die` names nothing in German and something in English. All of them where no word tells.
    """
    counts = {language: sum(word in known for word in words) for language, known in _SETS.items()}
    best = max(counts.values())
    if not best:
        return STOP_WORDS
    return frozenset(
        word
        for language, count in counts.items()
        if count >= _ALIKE * best
        for word in _SETS[language]
    )
